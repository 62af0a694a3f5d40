//! Where to go on when nothing is on record: the ledger was lost, and the cursor with it.
//!
//! The turns of a conversation name the rows that opened them, so its last turn says which row it stands at.
//! Rows before that one are passed in silence; at that one, the words must agree. If the row does not come, or
//! says something else, the conversation's turns are another database's, and all rows are new.

use crate::event::{Item, RowItems};
use crate::stage::deliver::Recovery;

/// The state of a search.
#[derive(Debug)]
pub enum Recovering {
    /// The conversation stands at a row that is still to come.
    Awaiting(Recovery),
    /// Nothing to search for.
    Done,
}

/// What to do with a row.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// Deliver it.
    Deliver,
    /// The conversation holds it, and all up to it.
    Delivered,
    /// It is the one at which the conversation stands: deliver it, with what is there already in mind.
    Reached(Recovery),
    /// The conversation does not stand in this session.
    NotThisSession,
}

impl Recovering {
    /// Judges the next row.
    pub fn judge(&mut self, row: &RowItems) -> Verdict {
        let Self::Awaiting(recovery) = self else { return Verdict::Deliver };
        if row.row < recovery.opener {
            return Verdict::Delivered;
        }
        let words = row.items.iter().find_map(|item| match item {
            Item::User { text, .. } => Some(text),
            _ => None,
        });
        let agrees =
            row.row == recovery.opener && (words == recovery.words.as_ref() || recovery.words.is_none());
        let Self::Awaiting(recovery) = std::mem::replace(self, Self::Done) else { return Verdict::Deliver };
        if agrees { Verdict::Reached(recovery) } else { Verdict::NotThisSession }
    }
}
