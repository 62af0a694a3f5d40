//! Whether the rows that were read are still those of the database: an older copy may have been put in its place,
//! and then their ids are given anew.

use super::Feed;
use crate::event::Reading;
use crate::hermes::{Open, SourceError};
use crate::ids::MessageId;

/// What is known of a mirror's place among the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    certain: bool,
    /// Whether it was looked at since the last change.
    looked_at: bool,
    /// The newest row of a database whose ids went back.
    newest: Option<MessageId>,
}

impl Place {
    /// To be looked at before anything is read.
    pub fn in_doubt() -> Self {
        Self { certain: false, looked_at: false, newest: None }
    }

    /// Whether rows may be read from there on.
    pub fn is_certain(self) -> bool {
        self.certain
    }

    /// The database has changed.
    pub fn expect_more(&mut self) {
        self.looked_at = false;
    }

    /// The newest row lies before what was read: rows were deleted, or an older copy restored.
    pub fn ids_went_back_to(&mut self, newest: MessageId) {
        *self = Self { newest: Some(newest), ..Self::in_doubt() };
    }
}

impl Feed {
    /// Has the place looked at before anything more is read.
    pub fn doubt_place(&mut self) {
        if let Some(following) = &mut self.following
            && following.place.is_certain()
        {
            following.place = Place::in_doubt();
        }
    }

    /// Whether there were rows to take since the last change.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.following.as_ref().is_some_and(|following| following.place.looked_at)
    }

    /// Whether the place is in doubt and can be looked at.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.following.as_ref().is_some_and(|following| !following.place.certain) && self.lane.has_room()
    }

    /// Looks at a place in doubt. Where an older copy was put in place, goes back to where it ends. Nothing is shown
    /// again: what lies behind that row is new. Returns whether it went back.
    pub fn find_place(&mut self, open: &Open) -> Result<bool, SourceError> {
        if !self.is_lost() {
            return Ok(false);
        }
        let Some(following) = &mut self.following else { return Ok(false) };
        let back_to = self.memory.rewound_to(open, following.read_to)?;
        if let Some(row) = back_to {
            tracing::warn!(
                conversation = %self.conversation, %row, read_to = %following.read_to,
                "an older copy of the database was put in its place; going on behind the last row that both have"
            );
            self.memory.rewind_to(row);
            following.rewrites =
                open.past(&following.session, row, &|range| self.memory.range(range))?.rewrites;
            following.read_to = row;
            self.send(Reading::Rewound(row));
        } else if let Some(newest) = following.place.newest {
            following.read_to = newest;
        }
        if let Some(following) = &mut self.following {
            following.place = Place { certain: true, looked_at: false, newest: None };
        }
        Ok(back_to.is_some())
    }

    /// Whether the place turns out to be another one now that there are rows to take; asked once for each change.
    pub(super) fn has_lost_its_place(&mut self, open: &Open) -> Result<bool, SourceError> {
        let Some(following) = &mut self.following else { return Ok(false) };
        if following.place.looked_at {
            return Ok(false);
        }
        following.place.looked_at = true;
        if self.memory.rewound_to(open, following.read_to)?.is_none() {
            return Ok(false);
        }
        following.place = Place::in_doubt();
        Ok(true)
    }
}
