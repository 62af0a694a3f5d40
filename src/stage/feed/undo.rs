//! What the person takes back: of the rows that wait on the lane, and of those that are shown.

use std::collections::BTreeSet;

use super::Feed;
use crate::event::{Beside, Reading, Undo};
use crate::hermes::{Fate, Open, SourceError};
use crate::ids::MessageId;

impl Feed {
    /// Also tells of each undo of what is shown.
    #[must_use]
    pub fn noting_undos(self, undo_note: bool) -> Self {
        Self { undo_note, ..self }
    }

    /// Takes note of what was taken back since the last look. `highest`: the highest id that the database ever gave to
    /// a row; what lies behind it was read from another copy, of which this one says nothing.
    pub fn take_back(&mut self, open: &Open, highest: Option<MessageId>) -> Result<(), SourceError> {
        self.recall(open, highest)?;
        self.tell_undo(open)
    }

    /// Takes the rows off the lane that were taken back while they waited there.
    fn recall(&mut self, open: &Open, highest: Option<MessageId>) -> Result<(), SourceError> {
        let Some(following) = &mut self.following else { return Ok(()) };
        let Some((first, last)) = self.lane.recall.ends() else { return Ok(()) };
        // Whoever takes rows back, or writes a transcript anew, does so from one row on: the last one tells, or the
        // first, if that was being sent then and others have come since.
        if highest.is_some_and(|highest| highest < last)
            || (open.fate(last)? == Fate::Stands && open.fate(first)? == Fate::Stands)
            || open.session(&following.session)?.is_none()
        {
            return Ok(());
        }
        let mut rows = 0;
        for row in self.lane.recall.unsent() {
            let fate = open.fate(row)?;
            if fate == Fate::Stands || !self.lane.recall.take_back(row) {
                continue;
            }
            self.memory.forget(row);
            if fate == Fate::TakenBack {
                following.watch_taken_back(row);
            }
            rows += 1;
        }
        tracing::debug!(conversation = %self.conversation, rows, "taken back while they waited to be sent");
        Ok(())
    }

    /// Tells of rows that were shown and taken back. Each undo reaches from one row to the end of what was live, so
    /// the newest row that is shown says whether there was one, and all that is live and unread was written behind it:
    /// told before any of that is, the note has the same place after a restart.
    pub(super) fn tell_undo(&mut self, open: &Open) -> Result<(), SourceError> {
        let Some(following) = self.following.as_mut().filter(|_| self.undo_note) else { return Ok(()) };
        let (Some(newest), Some(first)) = (following.newest, following.first) else { return Ok(()) };
        if open.fate(newest)? != Fate::TakenBack
            || open.rewinds(&following.session)? == 0
            || !self.lane.has_room()
        {
            return Ok(());
        }
        let undone = open.undone(&following.session, first, newest)?;
        following.newest = undone.stands;
        let Some((oldest, _)) = undone.rows.last() else { return Ok(()) };
        let range = *oldest..MessageId::new(newest.get().saturating_add(1));
        let shown: BTreeSet<_> = self.memory.range(range.clone()).into_iter().map(|(row, _)| row).collect();
        let noted = self.memory.undone(range);
        let is_noted = |row: MessageId| noted.iter().any(|(first, last)| (*first..=*last).contains(&row));
        let mut rows = undone.rows;
        rows.retain(|(row, _)| shown.contains(row) && !is_noted(*row));
        let messages = rows.iter().filter(|(_, is_message)| *is_message).count();
        if let (Some((last, _)), Some((first, _)), 1..) = (rows.first(), rows.last(), messages) {
            self.memory.note_undo((*first, *last));
            let messages = u32::try_from(messages).unwrap_or(u32::MAX);
            self.send(Reading::Beside(Beside::Undone(Undo { first: *first, last: *last, messages })));
        }
        Ok(())
    }
}
