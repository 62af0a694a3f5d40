//! Whether the person cut a turn short.
//!
//! Hermes says so in words of its own, or leaves out the reason why an answer ended. The second is no proof: its own
//! answers (an error, a limit) have none either, nor have rows that `/branch` copied. So it counts only where the
//! conversation's answers do have reasons, and the words are the first that the model says in its turn, or follow the
//! result of a tool that was interrupted.

use crate::event::{Ending, Item, RowItems, TurnEffect};

/// What is known of the turn that passes.
#[derive(Debug, Default)]
pub struct Interrupts {
    /// Answers of this conversation have had a reason why they ended.
    reasons: bool,
    /// The last row of the turn was the person's.
    asked: bool,
    /// The last row of the turn was the result of an interrupted tool.
    tool_cut: bool,
}

impl Interrupts {
    /// Passes a row. Returns whether it ends a turn that was interrupted.
    pub fn pass(&mut self, row: &RowItems) -> bool {
        if row.effect == TurnEffect::None {
            return false;
        }
        self.reasons |= row.notes.ending == Ending::Finished;
        let interrupted = match row.notes.ending {
            Ending::Interrupted => true,
            Ending::Unfinished => self.tool_cut || (self.asked && self.reasons),
            Ending::Silent | Ending::Finished | Ending::ToolInterrupted => false,
        };
        // Tools that ran side by side end one after the other.
        let is_result = row.items.iter().any(|item| matches!(item, Item::FunctionCallOutput { .. }));
        self.tool_cut = row.notes.ending == Ending::ToolInterrupted || (self.tool_cut && is_result);
        self.asked = row.effect == TurnEffect::Opens;
        interrupted && row.effect == TurnEffect::Closes
    }
}
