//! What the ledger remembers of the rows behind the cursor, for the reader to tell what comes back.

use std::ops::Range;

use rusqlite::OptionalExtension;

use super::Account;
use crate::event::Trace;
use crate::ids::MessageId;
use crate::state::StateError;

impl Account {
    /// The rows of a range that were delivered whole, ascending.
    pub fn rows(&self, range: Range<MessageId>) -> Result<Vec<(MessageId, Trace)>, StateError> {
        let conn = self.ledger.conn();
        let list = || -> rusqlite::Result<Vec<(MessageId, Trace)>> {
            conn.prepare_cached(
                "SELECT row, key, timestamp FROM row WHERE mirror = ?1 AND row >= ?2 AND row < ?3 ORDER BY row",
            )?
            .query_map((self.id, range.start.get(), range.end.get()), decode_row)?
            .collect()
        };
        list().map_err(|e| self.ledger.error(e))
    }

    /// The newest row before `row` that was delivered whole.
    pub fn row_before(&self, row: MessageId) -> Result<Option<(MessageId, Trace)>, StateError> {
        let conn = self.ledger.conn();
        conn.prepare_cached(
            "SELECT row, key, timestamp FROM row WHERE mirror = ?1 AND row < ?2 ORDER BY row DESC LIMIT 1",
        )
        .and_then(|mut s| s.query_row((self.id, row.get()), decode_row).optional())
        .map_err(|e| self.ledger.error(e))
    }

    /// The newest rows that were taken back before anything of them was shown, as many as `most`.
    pub fn taken_back(&self, most: usize) -> Result<Vec<MessageId>, StateError> {
        let conn = self.ledger.conn();
        let list = || -> rusqlite::Result<Vec<MessageId>> {
            conn.prepare_cached("SELECT row FROM taken_back WHERE mirror = ?1 ORDER BY row DESC LIMIT ?2")?
                .query_map((self.id, i64::try_from(most).unwrap_or(i64::MAX)), |row| {
                    row.get(0).map(MessageId::new)
                })?
                .collect()
        };
        list().map_err(|e| self.ledger.error(e))
    }

    /// The first and last row of each undo that begins in this range and whose note is settled.
    pub fn undone(&self, range: Range<MessageId>) -> Result<Vec<(MessageId, MessageId)>, StateError> {
        let conn = self.ledger.conn();
        let list = || -> rusqlite::Result<Vec<(MessageId, MessageId)>> {
            conn.prepare_cached(
                "SELECT first, last FROM undone WHERE mirror = ?1 AND first >= ?2 AND first < ?3",
            )?
            .query_map((self.id, range.start.get(), range.end.get()), |undo| {
                Ok((MessageId::new(undo.get(0)?), MessageId::new(undo.get(1)?)))
            })?
            .collect()
        };
        list().map_err(|e| self.ledger.error(e))
    }
}

fn decode_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<(MessageId, Trace)> {
    let key = row.get::<_, i64>(1)?.cast_unsigned();
    Ok((MessageId::new(row.get(0)?), Trace { key, timestamp: row.get(2)? }))
}
