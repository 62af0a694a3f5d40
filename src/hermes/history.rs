//! Where a mirror begins in a session of which nothing was shown.

use std::collections::BTreeSet;

use super::connection::{Open, SourceError};
use crate::event::Resume;
use crate::ids::{HermesSessionId, MessageId};

/// Longest chain of compactions that is walked; Hermes itself stops at 100.
const LONGEST_CHAIN: usize = 100;

impl Open {
    /// The newest of `session` and those that continue it.
    pub fn newest_continuation(&self, session: &HermesSessionId) -> Result<HermesSessionId, SourceError> {
        let mut newest = session.clone();
        for _ in 0..LONGEST_CHAIN {
            let Some(next) = self.continuation(&newest)? else { break };
            newest = next;
        }
        Ok(newest)
    }

    /// The row of `session` at or before `before` that has `behind` others of it behind it; the first one where there
    /// are not so many. `None` where it has no row there.
    pub fn row_from_end(
        &self,
        session: &HermesSessionId,
        before: MessageId,
        behind: u32,
    ) -> Result<Option<MessageId>, SourceError> {
        let run = || -> rusqlite::Result<Option<i64>> {
            self.conn()
                .prepare_cached(
                    "SELECT min(id) FROM (SELECT id FROM messages WHERE session_id = ?1 AND id <= ?2 \
                     ORDER BY id DESC LIMIT ?3)",
                )?
                .query_row((session.as_str(), before.get(), i64::from(behind) + 1), |row| row.get(0))
        };
        run().map(|id| id.map(MessageId::new)).map_err(|e| self.error(e))
    }

    /// How many rows `session` and those that continue it have behind the row `last`.
    pub fn rows_behind(&self, session: &HermesSessionId, last: MessageId) -> Result<u64, SourceError> {
        let mut count = 0;
        let mut next = Some(session.clone());
        for _ in 0..LONGEST_CHAIN {
            let Some(session) = next else { break };
            let rows: i64 = self
                .conn()
                .prepare_cached("SELECT count(*) FROM messages WHERE session_id = ?1 AND id > ?2")
                .and_then(|mut s| s.query_row((session.as_str(), last.get()), |row| row.get(0)))
                .map_err(|e| self.error(e))?;
            count += rows.unsigned_abs();
            next = self.continuation(&session)?;
        }
        Ok(count)
    }

    /// The row that opened the turn that goes on behind the row `last`; `None` where none does.
    pub fn opener_at(
        &self,
        session: &HermesSessionId,
        last: MessageId,
    ) -> Result<Option<MessageId>, SourceError> {
        let mut resume = Resume { last, ..Resume::default() };
        self.recover_turn(session, &BTreeSet::new(), &mut resume)?;
        Ok(resume.turn.filter(|turn| !turn.closed).and_then(|turn| turn.id.opener()))
    }
}
