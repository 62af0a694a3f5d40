//! The sessions of a database as a person looks them over.
//!
//! Each is asked for in a statement of its own, so that no snapshot lasts longer than one session's index entries.

use std::collections::HashMap;

use rusqlite::OptionalExtension;

use super::connection::{Open, SourceError};
use super::rewrite::is_summary;
use super::sessions::Session;
use super::turn::{closes, is_aside};
use crate::ids::{HermesSessionId, MessageId};

/// A session, and how far it has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Overview {
    /// The session. Its `cwd` is that of the one it continues, where Hermes left its own empty.
    pub session: Session,
    /// What it is called, also by a name that is still provisional.
    pub title: Option<String>,
    /// How many of its rows are live.
    pub messages: u64,
    /// When the last of them was stamped, in s since the epoch; without any, when the session began.
    pub last_at: f64,
    /// The last of them.
    last: Option<MessageId>,
}

impl Open {
    /// The sessions that `wanted` takes, that with the newest row first.
    pub fn overview(&self, wanted: impl Fn(&Session) -> bool) -> Result<Vec<Overview>, SourceError> {
        let all = self.sessions_since(f64::MIN)?;
        let by_id: HashMap<_, _> = all.iter().map(|session| (&session.id, session)).collect();
        let mut overviews = Vec::new();
        for session in all.iter().filter(|session| wanted(session)) {
            let (messages, last, last_at) = self.extent(&session.id)?;
            overviews.push(Overview {
                session: Session { cwd: directory(&by_id, session), ..session.clone() },
                title: self.title(&session.id)?,
                messages,
                last_at: last_at.unwrap_or(session.started_at),
                last,
            });
        }
        overviews
            .sort_by(|a, b| b.last_at.total_cmp(&a.last_at).then_with(|| b.session.id.cmp(&a.session.id)));
        Ok(overviews)
    }

    /// Whether the last row of a session leaves a turn open.
    pub fn has_open_turn(&self, overview: &Overview) -> Result<bool, SourceError> {
        let Some(last) = overview.last else { return Ok(false) };
        let mut open = false;
        self.history(
            &overview.session.id,
            last..MessageId::new(last.get().saturating_add(1)),
            |row, _live| {
                open = !(closes(&row) || is_aside(&row) || is_summary(&row));
                false
            },
        )?;
        Ok(open)
    }

    /// How many live rows a session has, and of the last one its id and its time.
    fn extent(
        &self,
        session: &HermesSessionId,
    ) -> Result<(u64, Option<MessageId>, Option<f64>), SourceError> {
        let has =
            |column, otherwise: &'static str, name| if self.schema().has(column) { name } else { otherwise };
        let time = has("messages.timestamp", "NULL", "timestamp");
        let live = has("messages.active", "1", "active IS NOT 0");
        self.conn()
            .prepare_cached(&format!(
                "SELECT count(*), max(id), max({time}) FROM messages WHERE session_id = ?1 AND {live}"
            ))
            .and_then(|mut statement| {
                statement.query_row([session.as_str()], |row| {
                    let last = row.get::<_, Option<i64>>(1)?.map(MessageId::new);
                    // A time may be of any type.
                    Ok((row.get::<_, i64>(0)?.unsigned_abs(), last, row.get(2).ok().flatten()))
                })
            })
            .map_err(|e| self.error(e))
    }

    fn title(&self, session: &HermesSessionId) -> Result<Option<String>, SourceError> {
        let select = self.schema().select("sessions", &[("title", "NULL")]);
        self.conn()
            .prepare_cached(&format!("SELECT {select} FROM sessions WHERE id = ?1"))
            .and_then(|mut statement| {
                let title = |row: &rusqlite::Row<'_>| Ok(row.get::<_, Option<String>>(0).ok().flatten());
                statement.query_row([session.as_str()], title).optional()
            })
            .map(|title| title.flatten().filter(|title| !title.trim().is_empty()))
            .map_err(|e| self.error(e))
    }
}

/// The directory of a session, or of the nearest one that it continues and that has one.
fn directory(by_id: &HashMap<&HermesSessionId, &Session>, session: &Session) -> Option<String> {
    let mut current = session;
    // Each is passed once at most, so that a circle ends.
    for _ in 0..by_id.len() {
        if current.cwd.is_some() {
            break;
        }
        current = by_id.get(current.parent.as_ref()?).filter(|parent| parent.is_compacted_away())?;
    }
    current.cwd.clone()
}
