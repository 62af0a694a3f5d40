//! Which rows on a lane may still be taken back: those of which nothing has been sent.
//!
//! Rows wait on a lane while the server is away, and meanwhile the person may take some of them back. The reader
//! finds that out at the wake of that very commit and notes it here, and the lane looks here before it sends. So the
//! lane waits for no answer and nobody asks the database twice: data flows one way still, and what is noted here is
//! as new as what was read.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ids::MessageId;

/// The rows on one lane, as the reader and the lane both see them; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Recall(Arc<Mutex<Rows>>);

#[derive(Debug, Default)]
struct Rows {
    /// In the order of the lane, those of which nothing has been sent.
    unsent: VecDeque<MessageId>,
    /// The row whose first item is being sent.
    out: Option<MessageId>,
    taken_back: BTreeSet<MessageId>,
}

/// What becomes of a row whose next item is about to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// Nothing: it was taken back.
    TakenBack,
    /// It goes out, the first of its row, which can be taken back no more.
    First,
    /// It goes out behind others of its row.
    Later,
}

impl Recall {
    /// A row is put on the lane.
    pub fn put(&self, row: MessageId) {
        self.rows().unsent.push_back(row);
    }

    /// The rows that may still be taken back, in the order of the lane.
    #[must_use]
    pub fn unsent(&self) -> Vec<MessageId> {
        self.rows().unsent.iter().copied().collect()
    }

    /// The first and the last of them.
    #[must_use]
    pub fn ends(&self) -> Option<(MessageId, MessageId)> {
        let rows = self.rows();
        rows.unsent.front().copied().zip(rows.unsent.back().copied())
    }

    /// The row was taken back. Whether that is in time.
    #[must_use]
    pub fn take_back(&self, row: MessageId) -> bool {
        let mut rows = self.rows();
        let Some(at) = rows.unsent.iter().position(|unsent| *unsent == row) else { return false };
        rows.unsent.remove(at);
        rows.taken_back.insert(row)
    }

    /// The rows on the lane are to be delivered whatever is in the database now.
    pub fn keep(&self) {
        let mut rows = self.rows();
        (rows.unsent, rows.out) = (VecDeque::new(), None);
    }

    /// Whether a row was taken back before anything of it was sent.
    #[must_use]
    pub fn is_taken_back(&self, row: MessageId) -> bool {
        self.rows().taken_back.contains(&row)
    }

    /// An item of the row is about to be sent.
    #[must_use]
    pub fn send(&self, row: MessageId) -> Sending {
        let mut rows = self.rows();
        if rows.taken_back.contains(&row) {
            return Sending::TakenBack;
        }
        // The lane sends in order, so it is the first, or a few behind rows that show nothing.
        let Some(at) = rows.unsent.iter().position(|unsent| *unsent == row) else { return Sending::Later };
        rows.out = rows.unsent.remove(at);
        Sending::First
    }

    /// The first item of the row was not taken, and nothing of it is at the server.
    pub fn unsend(&self, row: MessageId) {
        let mut rows = self.rows();
        let out = rows.out.take_if(|out| *out == row);
        if let Some(row) = out {
            rows.unsent.push_front(row);
        }
    }

    /// The lane has come past the row.
    pub fn pass(&self, row: MessageId) {
        let mut rows = self.rows();
        rows.taken_back.remove(&row);
        rows.out.take_if(|out| *out == row);
        rows.unsent.retain(|unsent| *unsent != row);
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        // Each use is one step, so a lane that failed has left nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(row: i64) -> MessageId {
        MessageId::new(row)
    }

    #[test]
    fn a_row_is_taken_back_only_while_nothing_of_it_was_sent() {
        let recall = Recall::default();
        for row in 1..=3 {
            recall.put(id(row));
        }
        assert_eq!(recall.send(id(1)), Sending::First);
        assert_eq!(recall.send(id(1)), Sending::Later);
        assert!(!recall.take_back(id(1)));
        assert!(recall.take_back(id(3)));
        assert_eq!((recall.ends(), recall.unsent()), (Some((id(2), id(2))), vec![id(2)]));
        assert_eq!(recall.send(id(3)), Sending::TakenBack);
        recall.pass(id(3));
        assert!(!recall.is_taken_back(id(3)), "what is passed is forgotten");
    }

    #[test]
    fn a_row_that_the_server_has_nothing_of_can_be_taken_back_again() {
        let recall = Recall::default();
        recall.put(id(1));
        assert_eq!(recall.send(id(1)), Sending::First);
        recall.unsend(id(1));
        assert!(recall.take_back(id(1)));
        assert_eq!(recall.send(id(1)), Sending::TakenBack);
    }

    #[test]
    fn a_row_that_shows_nothing_is_forgotten_once_it_is_passed() {
        let recall = Recall::default();
        recall.put(id(1));
        recall.pass(id(1));
        assert!(recall.unsent().is_empty() && !recall.take_back(id(1)));
    }

    #[test]
    fn rows_that_are_to_be_kept_are_sent() {
        let recall = Recall::default();
        recall.put(id(1));
        recall.put(id(2));
        assert_eq!(recall.send(id(1)), Sending::First);
        recall.keep();
        recall.unsend(id(1));
        assert!(!recall.take_back(id(1)) && !recall.take_back(id(2)));
        assert_eq!(recall.send(id(1)), Sending::Later);
    }
}
