//! Rows of `sessions`: who a session belongs to, and what it continues.

use rusqlite::Row as SqlRow;

use super::connection::{Open, SourceError};
use crate::ids::HermesSessionId;

/// What the mirror asks of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// `id`
    pub id: HermesSessionId,
    /// `source`: `cli`, `tui`, `subagent`, `tool`, `cron`, the name of a messaging platform …
    pub source: String,
    /// `cwd`; often absent (facts/hermes.md 1.9).
    pub cwd: Option<String>,
    /// `started_at`, seconds since the epoch. A resumed session keeps its old one.
    pub started_at: f64,
    /// `ended_at`, seconds since the epoch; as little an end as `end_reason`.
    pub ended_at: Option<f64>,
    /// `end_reason`; set while another process still writes, and unset by a resume.
    pub end_reason: Option<String>,
    /// `parent_session_id`
    pub parent: Option<HermesSessionId>,
    /// `model`
    pub model: Option<String>,
    /// `title`
    pub title: Option<String>,
    /// How the session came from its parent, where Hermes marked it (from 0.17).
    pub marker: Option<Marker>,
    /// Whether it has messages.
    pub has_rows: bool,
}

/// What `model_config` says of a session's origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// `_delegate_from`: a sub-agent's session.
    Delegate,
    /// `_branched_from`: a copy made by `/branch`.
    Branch,
}

/// Why `sessions.end_reason` was set when a compaction forked the session.
pub const ENDED_BY_COMPACTION: &str = "compression";
/// The same, when the terminal began another session by `/new` or `/clear`.
pub const LEFT_FOR_NEW: &str = "new_session";
/// The same, when the terminal took up another session by `/resume`.
pub const LEFT_FOR_OTHER: &str = "resumed_other";

impl Session {
    /// Whether the session was ended by a fork compaction, so that a child continues it.
    #[must_use]
    pub fn is_compacted_away(&self) -> bool {
        self.end_reason.as_deref() == Some(ENDED_BY_COMPACTION)
    }

    /// Whether its terminal went on in another session.
    #[must_use]
    pub fn is_left(&self) -> bool {
        matches!(self.end_reason.as_deref(), Some(LEFT_FOR_NEW | LEFT_FOR_OTHER))
    }

    /// Whether it comes from one of `sources`, or from a Hermes that does not say.
    #[must_use]
    pub fn is_from(&self, sources: &[String]) -> bool {
        self.source.is_empty() || sources.contains(&self.source)
    }

    /// Whether no person sits at it: sub-agents, branches that were not asked for by the terminal,
    /// background work (`bg_…` ids share source and cwd with the terminal that started them), tools, cron.
    #[must_use]
    pub fn is_side_session(&self) -> bool {
        const NOT_A_TERMINAL: [&str; 4] = ["subagent", "tool", "cron", "background"];
        self.marker.is_some()
            || NOT_A_TERMINAL.contains(&self.source.as_str())
            || self.id.as_str().starts_with("bg_")
    }
}

const COLUMNS: &[(&str, &str)] = &[
    ("id", "NULL"),
    ("source", "''"),
    ("cwd", "NULL"),
    ("started_at", "0"),
    ("end_reason", "NULL"),
    ("parent_session_id", "NULL"),
    ("model", "NULL"),
    ("model_config", "NULL"),
    ("ended_at", "NULL"),
    ("title", "NULL"),
];

impl Open {
    /// One session; `None` where there is none of that id.
    pub fn session(&self, id: &HermesSessionId) -> Result<Option<Session>, SourceError> {
        Ok(self.sessions_where("id = ?1", id.as_str())?.pop())
    }

    /// The sessions whose parent is `id`.
    pub fn children(&self, id: &HermesSessionId) -> Result<Vec<Session>, SourceError> {
        if !self.schema().has("sessions.parent_session_id") {
            return Ok(Vec::new());
        }
        self.sessions_where("parent_session_id = ?1", id.as_str())
    }

    /// The sessions that started at or after `since`, in s since the epoch.
    pub fn sessions_since(&self, since: f64) -> Result<Vec<Session>, SourceError> {
        self.sessions_where("started_at >= ?1", since)
    }

    /// A figure that moves when a session is created.
    pub fn newest_session(&self) -> Result<i64, SourceError> {
        self.conn()
            .prepare_cached("SELECT max(rowid) FROM sessions")
            .and_then(|mut s| s.query_row([], |row| row.get::<_, Option<i64>>(0)))
            .map(Option::unwrap_or_default)
            .map_err(|e| self.error(e))
    }

    fn sessions_where(
        &self,
        condition: &str,
        parameter: impl rusqlite::ToSql,
    ) -> Result<Vec<Session>, SourceError> {
        let run = || -> rusqlite::Result<Vec<Session>> {
            let select = self.schema().select("sessions", COLUMNS);
            let mut statement = self.conn().prepare_cached(&format!(
                "SELECT {select}, EXISTS (SELECT 1 FROM messages WHERE session_id = sessions.id) \
                 FROM sessions WHERE {condition} ORDER BY started_at, id"
            ))?;
            statement.query_map([parameter], decode)?.collect()
        };
        run().map_err(|e| self.error(e))
    }
}

fn decode(row: &SqlRow<'_>) -> rusqlite::Result<Session> {
    let text = |at: usize| -> rusqlite::Result<Option<String>> {
        let bytes = row.get_ref(at)?.as_bytes_or_null().unwrap_or_default();
        Ok(bytes.map(|b| String::from_utf8_lossy(b).into_owned()).filter(|s| !s.is_empty()))
    };
    let model_config = text(7)?;
    Ok(Session {
        id: HermesSessionId::new(text(0)?.unwrap_or_default()),
        source: text(1)?.unwrap_or_default(),
        cwd: text(2)?,
        started_at: row.get::<_, f64>(3).unwrap_or_default(),
        end_reason: text(4)?,
        parent: text(5)?.map(HermesSessionId::new),
        model: text(6)?,
        ended_at: row.get::<_, Option<f64>>(8).ok().flatten(),
        marker: model_config.as_deref().and_then(marker),
        title: text(9)?,
        has_rows: row.get(10)?,
    })
}

fn marker(model_config: &str) -> Option<Marker> {
    let config: serde_json::Value = serde_json::from_str(model_config).ok()?;
    let set = |key: &str| config.get(key).is_some_and(|value| !value.is_null());
    if set("_delegate_from") {
        Some(Marker::Delegate)
    } else if set("_branched_from") {
        Some(Marker::Branch)
    } else {
        None
    }
}
