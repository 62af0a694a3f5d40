//! A session that goes on under another id, or whose terminal goes on in another session.

use std::collections::BTreeSet;

use super::{Feed, Following};
use crate::event::Reading;
use crate::hermes::{Open, Rewrites, SourceError, Succession, Wave};
use crate::ids::{HermesSessionId, MessageId};
use crate::stage::{search::Target, seek};

impl Feed {
    /// Goes on in the child that a fork compaction made, once all of the parent is read. Returns whether it did.
    pub fn follow_continuation(&mut self, open: &Open) -> Result<bool, SourceError> {
        let Some(following) = &mut self.following else { return Ok(false) };
        // A lane that was full while the parent was read may have room by now; the parent is read first all the same.
        if !following.caught_up || !self.lane.has_room() {
            return Ok(false);
        }
        let Some(child) = open.continuation(&following.session)? else { return Ok(false) };
        let Some(first) = open.first_row(&child)? else { return Ok(false) };
        if self.is_overtaken(open)? {
            return Ok(true);
        }
        let before_first = MessageId::new(first.get().saturating_sub(1));
        let Some(following) = &mut self.following else { return Ok(false) };
        tracing::info!(
            conversation = %self.conversation, session = %following.session, child = %child,
            "the session was compacted into a new one; following it"
        );
        *following = Following {
            session: child.clone(),
            read_to: before_first,
            highest: following.highest,
            taken_back: BTreeSet::new(),
            newest: None,
            rewrites: Rewrites::default(),
            held: None,
            wave: Wave::default(),
            turn_closed: following.turn_closed,
            caught_up: false,
            untold: false,
            first: Some(first),
            place: following.place,
        };
        self.lane.backlog.set(open.rows_behind(&child, before_first)?);
        self.watch.follow();
        self.send(Reading::Continued(child));
        Ok(true)
    }

    /// Goes on where the terminal does that has left its session, once all of that is read. Returns whether it did.
    /// A session that a person named is not left. `is_another_s`: whether a
    /// session is followed by another mirror of this process.
    pub fn follow_terminal(
        &mut self,
        open: &Open,
        is_another_s: impl Fn(&HermesSessionId) -> bool,
    ) -> Result<bool, SourceError> {
        let (Some(following), Target::Terminal(_)) = (&self.following, &self.search.target) else {
            return Ok(false);
        };
        if !following.caught_up || following.turn_closed || !self.lane.has_room() {
            return Ok(false);
        }
        if following.first.is_none() && open.session(&following.session)?.is_none() {
            tracing::info!(
                conversation = %self.conversation, session = %following.session,
                "the empty session was discarded; looking for the terminal's next one"
            );
            (self.following, self.resume) = (None, None);
            self.stats.follows(None);
            return Ok(true);
        }
        let taken = |session: &HermesSessionId| is_another_s(session) || (self.search.taken)(session);
        match open.successor(&following.session, taken)? {
            Succession::Stays => Ok(false),
            Succession::Goes { .. } if self.is_overtaken(open)? => Ok(true),
            Succession::Goes { session, behind } => {
                let Some(following) = &self.following else { return Ok(false) };
                tracing::info!(
                    conversation = %self.conversation, left = %following.session, %session,
                    "the terminal has left its session for another one; following it"
                );
                self.begin(open, seek::from_behind(session, behind))?;
                Ok(true)
            }
            Succession::Unsure(several) => {
                self.search.refuse(
                    several,
                    "the terminal has left its session, and it is not certain that it went on in",
                    "to have one mirrored, name it as `session` in [[mirror]]",
                );
                Ok(false)
            }
        }
    }

    /// Whether rows have come since the session was read to its end. They were committed before it was left, and are
    /// read first.
    fn is_overtaken(&mut self, open: &Open) -> Result<bool, SourceError> {
        let Some(following) = &mut self.following else { return Ok(false) };
        let more = open.next_timestamp(&following.session, following.read_to)?.is_some();
        following.caught_up &= !more;
        Ok(more)
    }
}
