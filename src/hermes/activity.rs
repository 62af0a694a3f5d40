//! In which sessions something was said lately. `started_at` tells nothing of that: a resumed session keeps its old one.

use std::collections::BTreeSet;

use rusqlite::OptionalExtension;

use super::connection::{Open, SourceError};
use super::rewrite::is_summary;
use crate::event::Role;
use crate::ids::{HermesSessionId, MessageId};

/// A rewrite may re-insert rows with their old times, so that many in a row do not end the search.
const OLDER_IN_A_ROW: usize = 256;
/// Most rows that one search passes.
const ROWS: usize = 4_096;

impl Open {
    /// The sessions that have rows stamped at or after `since`, in s since the epoch. Searched from the newest row
    /// backwards, no further than is worth it.
    pub(super) fn active_since(&self, since: f64) -> Result<BTreeSet<HermesSessionId>, SourceError> {
        if !self.schema().has("messages.timestamp") {
            return Ok(BTreeSet::new());
        }
        let run = || -> rusqlite::Result<BTreeSet<HermesSessionId>> {
            let mut statement =
                self.conn().prepare_cached("SELECT session_id, timestamp FROM messages ORDER BY id DESC")?;
            let mut rows = statement.query([])?;
            let (mut active, mut older) = (BTreeSet::new(), 0);
            for _ in 0..ROWS {
                let Some(row) = rows.next()? else { break };
                if row.get::<_, f64>(1).unwrap_or_default() >= since {
                    older = 0;
                    if let Ok(id) = row.get_ref(0)?.as_str() {
                        active.insert(HermesSessionId::new(id));
                    }
                } else {
                    older += 1;
                    if older >= OLDER_IN_A_ROW {
                        break;
                    }
                }
            }
            Ok(active)
        };
        run().map_err(|e| self.error(e))
    }

    /// The first row of `session` stamped at or after `since`, in s since the epoch, if what was said from there on
    /// begins with it: someone asked, or a compaction made place for it. A session in which a turn was running at
    /// that time is another terminal's.
    pub(super) fn begun_since(
        &self,
        session: &HermesSessionId,
        since: f64,
    ) -> Result<Option<MessageId>, SourceError> {
        let first: Option<i64> = self
            .conn()
            .prepare_cached("SELECT min(id) FROM messages WHERE session_id = ?1 AND timestamp >= ?2")
            .and_then(|mut s| s.query_row((session.as_str(), since), |row| row.get(0)))
            .map_err(|e| self.error(e))?;
        let Some(first) = first.map(MessageId::new) else { return Ok(None) };
        let mut begins = false;
        self.walk(session, first, |row, _live| {
            begins = row.role == Role::User || is_summary(&row);
            false
        })?;
        Ok(begins.then_some(first))
    }

    /// Whether something was said in `session` from `from` to before `to`, in s since the epoch.
    pub(super) fn was_active(
        &self,
        session: &HermesSessionId,
        from: f64,
        to: f64,
    ) -> Result<bool, SourceError> {
        self.conn()
            .prepare_cached(
                "SELECT 1 FROM messages WHERE session_id = ?1 AND timestamp >= ?2 AND timestamp < ?3 LIMIT 1",
            )
            .and_then(|mut s| s.query_row((session.as_str(), from, to), |_| Ok(())).optional())
            .map(|found| found.is_some())
            .map_err(|e| self.error(e))
    }
}
