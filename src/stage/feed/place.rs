//! Whether the rows that were read are still those of the database: an older copy may have been put in its place,
//! and then their ids are given anew; rows may have been taken back, and be live again.

use super::Feed;
use crate::event::{Reading, Rewind};
use crate::hermes::{Open, SourceError};
use crate::ids::MessageId;

/// What is known of a mirror's place among the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The database has changed since it was looked at.
    Unchecked,
    /// Rows were taken from there on since the last change.
    Checked,
}

impl Feed {
    /// Goes back to the first row that was taken back before it could be shown and is live again, if there is one.
    pub fn revive(&mut self, open: &Open) -> Result<(), SourceError> {
        let Some(following) = &mut self.following else { return Ok(()) };
        for row in following.taken_back.clone() {
            if open.is_live(row)? {
                let before = MessageId::new(row.get() - 1);
                let past = open.past(&following.session, before, &|range| self.memory.range(range))?;
                following.taken_back.split_off(&row);
                following.rewrites = past.rewrites;
                following.read_to = following.read_to.min(before);
                break;
            }
        }
        Ok(())
    }

    /// Whether it has read a row of an id that no row was ever given: an older copy was put in place.
    #[must_use]
    pub fn has_read_beyond(&self, highest: Option<MessageId>) -> bool {
        let read = self.following.as_ref().map(|following| following.highest);
        highest.zip(read).is_some_and(|(highest, read)| highest < read)
    }

    /// Goes back to where an older copy of the database ends, if one was put in place. Nothing is shown again:
    /// what lies behind that row is new.
    /// `highest`: the highest id that its rows were ever given, where that is on record. Returns whether it went back.
    pub fn re_anchor(&mut self, open: &Open, highest: Option<MessageId>) -> Result<bool, SourceError> {
        let is_older = self.has_read_beyond(highest);
        let Some(following) = &mut self.following else { return Ok(false) };
        // The copy may be older than the session that was followed: back to the one that this one continued.
        let known = open.session(&following.session)?.is_some();
        let (row, ids_are_reused) = self.memory.shared_with(open, following.highest)?;
        let left = if known { None } else { open.session_of(row)? };
        let is_older = is_older || ids_are_reused;
        if !(known && is_older || left.is_some()) || !self.lane.has_room() {
            return Ok(false);
        }
        let session = left.unwrap_or_else(|| following.session.clone());
        let closed_turns = open.closed_turns(&session, row)?;
        let rewind = Rewind { row, session: session.clone(), closed_turns };
        tracing::warn!(
            conversation = %self.conversation, %row, read_to = %following.read_to,
            "an older copy of the database was put in its place; going on behind the last row that both have"
        );
        self.memory.rewind_to(row);
        self.lane.recall.keep();
        following.rewrites = open.past(&session, row, &|range| self.memory.range(range))?.rewrites;
        (following.read_to, following.highest) = (row, row);
        following.taken_back.split_off(&row);
        following.newest = Some(row);
        following.session.clone_from(&session);
        self.send(Reading::Rewound(rewind));
        Ok(true)
    }

    /// Whether there were rows to take since the last change.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.following.as_ref().is_some_and(|following| following.place == Place::Checked)
    }

    /// Whether rows may be taken; looked at once for each change that brings some. A copy that was written over the
    /// database since the last look may have been given as many ids as were read, and is known by those alone.
    pub(super) fn may_take(&mut self, open: &Open) -> Result<bool, SourceError> {
        let Some(following) = &mut self.following else { return Ok(true) };
        if following.place == Place::Checked {
            return Ok(true);
        }
        if !self.lane.has_room() {
            return Ok(false);
        }
        let (_, ids_are_reused) = self.memory.shared_with(open, following.highest)?;
        if ids_are_reused && self.re_anchor(open, None)? {
            return Ok(false);
        }
        // Rows that are there now were written behind it.
        self.tell_undo(open)?;
        if let Some(following) = &mut self.following {
            following.place = Place::Checked;
        }
        Ok(true)
    }
}
