//! What `/undo` and a rewind leave behind: rows that are no longer live, from one of them to the last.

use rusqlite::OptionalExtension;

use super::connection::{Open, SourceError};
use super::content;
use super::rewrite::is_summary;
use super::rows::decode;
use crate::event::{Role, Row, Standing};
use crate::ids::{HermesSessionId, MessageId};

/// The rows at the end of a session's past that are no longer live.
#[derive(Debug, Default, PartialEq)]
pub struct Undone {
    /// These rows, newest first, and whether each is a message of the person or the model.
    pub rows: Vec<(MessageId, bool)>,
    /// The row before them.
    pub stands: Option<MessageId>,
}

impl Open {
    /// How often rows of a session were taken back by an undo; 0 where this version does not count.
    pub fn rewinds(&self, session: &HermesSessionId) -> Result<i64, SourceError> {
        let select = self.schema().select("sessions", &[("rewind_count", "0")]);
        self.conn()
            .prepare_cached(&format!("SELECT {select} FROM sessions WHERE id = ?1"))
            .and_then(|mut s| s.query_row([session.as_str()], |row| row.get::<_, Option<i64>>(0)).optional())
            .map(|count| count.flatten().unwrap_or(0))
            .map_err(|e| self.error(e))
    }

    /// The rows of a session from `last` down to `first` that were taken back by an undo, until one that was not. An
    /// edit (0.20) takes back the whole transcript, too, and writes what it keeps of it anew: with the times that it
    /// had, so that the clock runs back behind the rows that it replaced.
    pub fn undone(
        &self,
        session: &HermesSessionId,
        first: MessageId,
        last: MessageId,
    ) -> Result<Undone, SourceError> {
        let mut later = self.next_timestamp(session, last)?;
        let mut undone = Undone::default();
        let mut run = || -> rusqlite::Result<()> {
            let select = self.schema().row_columns();
            let mut statement = self.conn().prepare_cached(&format!(
                "SELECT {select} FROM messages WHERE id BETWEEN ?2 AND ?3 AND +session_id = ?1 ORDER BY id DESC"
            ))?;
            let mut found = statement.query((session.as_str(), first.get(), last.get()))?;
            while let Some(sql) = found.next()? {
                let row = decode(sql, std::slice::from_ref(session))?;
                if row.standing != Standing::TakenBack {
                    undone.stands = Some(row.id);
                    break;
                }
                if later.replace(row.timestamp).is_some_and(|later| later < row.timestamp) {
                    break;
                }
                undone.rows.push((row.id, is_message(&row)));
            }
            Ok(())
        };
        run().map_err(|e| self.error(e))?;
        Ok(undone)
    }
}

fn is_message(row: &Row) -> bool {
    let text = || row.content.as_deref().map(content::decode).unwrap_or_default().into_text();
    matches!(row.role, Role::User | Role::Assistant) && !is_summary(row) && !text().trim().is_empty()
}
