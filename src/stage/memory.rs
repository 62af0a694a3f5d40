//! What a mirror remembers of the rows it has shown, beyond what Hermes still holds.
//!
//! The ledger remembers what was delivered; the rows that wait in the lane are remembered here, as many as fit
//! into it.

use std::collections::VecDeque;
use std::ops::Range;

use crate::event::Trace;
use crate::hermes::{Open, SourceError};
use crate::ids::MessageId;

/// Two times that are closer than this, in s, are the same: a microsecond is Hermes's step.
const SAME: f64 = 0.5e-6;

/// A remembered row.
pub type Remembered = (MessageId, Trace);

/// What the ledger is asked for.
pub struct Delivered {
    /// The rows of a range, ascending.
    pub range: Box<dyn Fn(Range<MessageId>) -> Vec<Remembered> + Send>,
    /// The newest row before one.
    pub before: Box<dyn Fn(MessageId) -> Option<Remembered> + Send>,
}

/// A mirror's memory.
pub struct Memory {
    delivered: Delivered,
    waiting: VecDeque<Remembered>,
    room: usize,
}

impl Memory {
    /// Remembers what `delivered` knows, and `room` rows more.
    #[must_use]
    pub fn new(delivered: Delivered, room: usize) -> Self {
        Self { delivered, waiting: VecDeque::new(), room }
    }

    /// A row is on its way.
    pub fn note(&mut self, row: MessageId, trace: Option<Trace>) {
        if let Some(trace) = trace {
            if self.waiting.len() >= self.room {
                self.waiting.pop_front();
            }
            self.waiting.push_back((row, trace));
        }
    }

    /// Rows on their way are not delivered: they will be read again, from behind `row`.
    pub fn forget_behind(&mut self, row: MessageId) {
        self.waiting.retain(|(id, _)| *id <= row);
    }

    /// The rows of a range.
    #[must_use]
    pub fn range(&self, range: Range<MessageId>) -> Vec<Remembered> {
        let mut rows = (self.delivered.range)(range.clone());
        rows.extend(self.waiting.iter().filter(|(id, _)| range.contains(id)));
        rows
    }

    fn before(&self, row: MessageId) -> Option<Remembered> {
        let waiting = self.waiting.iter().rev().find(|(id, _)| *id < row).copied();
        match (waiting, (self.delivered.before)(row)) {
            // One and the same row: the lane has yet to tell the ledger that an older copy has taken the ids back.
            (Some(a), Some(b)) => Some(if b.0 > a.0 { b } else { a }),
            (a, b) => a.or(b),
        }
    }

    /// Where an older copy of the database was put in place of the one that was read up to `read_to`: the newest
    /// row that both have. `None` where nothing of the kind has happened.
    ///
    /// The sign is an id that now belongs to a row of another time, or is still to be given again. A row that was
    /// deleted, or whose content was rewritten in its place, is none.
    pub fn rewound_to(&self, open: &Open, read_to: MessageId) -> Result<Option<MessageId>, SourceError> {
        let mut ids_are_reused = false;
        let mut before = MessageId::new(read_to.get().saturating_add(1));
        while let Some((row, trace)) = self.before(before) {
            match open.timestamp(row)? {
                Some(now) if (now - trace.timestamp).abs() < SAME => {
                    return Ok(ids_are_reused.then_some(row));
                }
                Some(_) => ids_are_reused = true,
                None => ids_are_reused |= open.highest_id_given()?.is_some_and(|given| given < row),
            }
            before = row;
        }
        Ok(ids_are_reused.then_some(MessageId::ZERO))
    }
}
