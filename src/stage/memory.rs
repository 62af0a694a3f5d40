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

/// After so many deleted rows one behind the other, no row is looked for any further back: a session that Hermes
/// deleted may have had a hundred thousand.
const DELETED: usize = 256;

/// The first and the last row of an undo.
pub type Reach = (MessageId, MessageId);

/// A remembered row.
pub type Remembered = (MessageId, Trace);

/// What the ledger is asked for.
pub struct Delivered {
    /// The rows of a range, ascending.
    pub range: Box<dyn Fn(Range<MessageId>) -> Vec<Remembered> + Send>,
    /// The newest row before one.
    pub before: Box<dyn Fn(MessageId) -> Option<Remembered> + Send>,
    /// The undos that begin in a range and were noted.
    pub undone: Box<dyn Fn(Range<MessageId>) -> Vec<Reach> + Send>,
    /// The newest rows, so many at most, that were taken back before anything of them was shown.
    pub taken_back: Box<dyn Fn(usize) -> Vec<MessageId> + Send>,
}

/// A mirror's memory.
pub struct Memory {
    delivered: Delivered,
    waiting: VecDeque<Remembered>,
    /// Undos whose notes are on their way.
    undone: VecDeque<Reach>,
    room: usize,
    /// Whether the newest of all rows is among those that wait. If not, the ledger may hold a newer one.
    is_newest: bool,
    /// Where an older copy of the database ended. What the ledger holds behind it is of the time before, until the
    /// lane has come to the rows that were read since.
    rewound: Option<MessageId>,
}

impl Memory {
    /// Remembers what `delivered` knows, and `room` rows more.
    #[must_use]
    pub fn new(delivered: Delivered, room: usize) -> Self {
        Self {
            delivered,
            waiting: VecDeque::new(),
            undone: VecDeque::new(),
            room,
            is_newest: false,
            rewound: None,
        }
    }

    /// A row is on its way.
    pub fn note(&mut self, row: MessageId, trace: Option<Trace>) {
        if let Some(trace) = trace {
            if self.waiting.len() >= self.room
                && let Some((delivered, _)) = self.waiting.pop_front()
            {
                self.rewound = self.rewound.filter(|rewound| delivered <= *rewound);
            }
            self.waiting.push_back((row, trace));
            self.is_newest = true;
        }
    }

    /// Rows on their way are not delivered: they will be read again, from behind `row`.
    pub fn forget_behind(&mut self, row: MessageId) {
        self.waiting.retain(|(id, _)| *id <= row);
        self.is_newest = false;
        self.undone.clear();
        self.rewound = None;
    }

    /// A row on its way is not delivered, and should it be live again, it is new.
    pub fn forget(&mut self, row: MessageId) {
        self.waiting.retain(|(id, _)| *id != row);
    }

    /// The rows behind `row` are gone, and their ids will be given to others.
    pub fn rewind_to(&mut self, row: MessageId) {
        self.forget_behind(row);
        self.rewound = Some(row);
    }

    /// The rows of a range.
    #[must_use]
    pub fn range(&self, range: Range<MessageId>) -> Vec<Remembered> {
        let mut rows = (self.delivered.range)(range.clone());
        rows.retain(|(id, _)| self.rewound.is_none_or(|rewound| *id <= rewound));
        rows.extend(self.waiting.iter().filter(|(id, _)| range.contains(id)));
        rows
    }

    /// The note on an undo is on its way.
    pub fn note_undo(&mut self, undo: Reach) {
        if self.undone.len() >= self.room {
            self.undone.pop_front();
        }
        self.undone.push_back(undo);
    }

    /// The undos that begin in a range and were noted.
    #[must_use]
    pub fn undone(&self, range: Range<MessageId>) -> Vec<Reach> {
        let mut undone = (self.delivered.undone)(range.clone());
        undone.extend(self.undone.iter().filter(|(first, _)| range.contains(first)));
        undone
    }

    /// The newest rows, `most` at most, that an earlier run passed as taken back.
    #[must_use]
    pub fn taken_back(&self, most: usize) -> Vec<MessageId> {
        (self.delivered.taken_back)(most)
    }

    /// Whether the row of this id is remembered.
    #[must_use]
    pub fn holds(&self, row: MessageId) -> bool {
        !self.range(row..MessageId::new(row.get().saturating_add(1))).is_empty()
    }

    fn before(&self, row: MessageId) -> Option<Remembered> {
        let waiting = self.waiting.iter().rev().find(|(id, _)| *id < row).copied();
        if self.is_newest && waiting.is_some() {
            return waiting;
        }
        let last =
            self.rewound.map_or(row, |rewound| row.min(MessageId::new(rewound.get().saturating_add(1))));
        match (waiting, (self.delivered.before)(last)) {
            // Of two rows of one id the waiting one is the newer: the other was read from a database since replaced.
            (Some(a), Some(b)) => Some(if a.0 >= b.0 { a } else { b }),
            (a, b) => a.or(b),
        }
    }

    /// The newest row up to `read_to` that is in the database as it is remembered, and whether an id behind it now
    /// belongs to another row: the sign that an older copy of the database was put in its place.
    ///
    /// Another row is one of another time. A row that was deleted, or whose content was rewritten in its place, is
    /// no sign.
    pub fn shared_with(&self, open: &Open, read_to: MessageId) -> Result<(MessageId, bool), SourceError> {
        let (mut ids_are_reused, mut deleted) = (false, 0);
        let mut before = MessageId::new(read_to.get().saturating_add(1));
        while let Some((row, trace)) = self.before(before) {
            match open.timestamp(row)? {
                Some(now) if (now - trace.timestamp).abs() < SAME => return Ok((row, ids_are_reused)),
                Some(_) => (ids_are_reused, deleted) = (true, 0),
                None => deleted += 1,
            }
            if deleted > DELETED && !ids_are_reused {
                return Ok((MessageId::ZERO, false));
            }
            before = row;
        }
        Ok((MessageId::ZERO, ids_are_reused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remembered(row: i64, timestamp: f64) -> Remembered {
        (MessageId::new(row), Trace { key: 1, timestamp })
    }

    #[test]
    fn a_row_that_waits_goes_before_a_delivered_one_of_the_same_id() {
        let delivered = Delivered {
            range: Box::new(|_| Vec::new()),
            before: Box::new(|_| Some(remembered(4, 100.0))),
            undone: Box::new(|_| Vec::new()),
            taken_back: Box::new(|_| Vec::new()),
        };
        let mut memory = Memory::new(delivered, 8);
        let (id, trace) = remembered(4, 200.0);
        memory.note(id, Some(trace));
        assert_eq!(memory.before(MessageId::new(5)), Some(remembered(4, 200.0)));
    }
}
