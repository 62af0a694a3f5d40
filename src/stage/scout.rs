//! The search for a session that has no conversation yet, and so no lane: once it is found, the pipeline is told, has
//! one made, and puts a feed in the place of the scout.

use tokio::sync::mpsc::UnboundedSender;

use super::feed::Feed;
use super::pump::Occasions;
use super::search::Search;
use crate::event::Sighting;
use crate::hermes::{Open, SourceError};
use crate::ids::HermesSessionId;

/// Looks for the session of one mirror.
pub struct Scout {
    purpose: String,
    search: Search,
}

impl Scout {
    /// Looks for what `search` does, for `purpose`.
    #[must_use]
    pub fn new(purpose: String, search: Search) -> Self {
        Self { purpose, search }
    }

    fn look(&mut self, open: &Open, others: &[HermesSessionId]) -> Result<Option<Sighting>, SourceError> {
        let Some(binding) = self.search.find(open, None, others)? else { return Ok(None) };
        let started_at = open.session(&binding.session)?.map_or(0.0, |session| session.started_at);
        Ok(Some(Sighting { purpose: self.purpose.clone(), binding, started_at }))
    }
}

/// The scouts of one database.
pub struct Scouts {
    looking: Vec<Scout>,
    /// What was sighted and has no feed yet.
    sighted: Vec<HermesSessionId>,
    sightings: UnboundedSender<Sighting>,
    occasions: Occasions,
}

impl Scouts {
    /// Sends `looking` out, to tell what they see to `sightings`. `sighted` was seen before.
    #[must_use]
    pub fn new(
        looking: Vec<Scout>,
        sighted: Vec<HermesSessionId>,
        sightings: UnboundedSender<Sighting>,
    ) -> Self {
        Self { looking, sighted, sightings, occasions: Occasions::default() }
    }

    /// Whether one still looks, or what it has sighted has no feed yet.
    #[must_use]
    pub fn are_out(&self) -> bool {
        !self.looking.is_empty() || self.await_feeds()
    }

    /// Whether something was sighted that has no feed yet.
    #[must_use]
    pub fn await_feeds(&self) -> bool {
        !self.sighted.is_empty()
    }

    /// What was sighted has its feed.
    pub fn return_from(&mut self, sighted: &HermesSessionId) {
        self.sighted.retain(|session| session != sighted);
    }

    /// Tells what is sighted at this look. Who has sighted something looks no more.
    pub fn look(&mut self, open: &Open, feeds: &[Feed]) -> Result<(), SourceError> {
        if self.looking.is_empty() {
            return Ok(());
        }
        let due = self.occasions.are_due(open.newest_session()?);
        let mut at = 0;
        while let Some(scout) = self.looking.get_mut(at) {
            let mut found = None;
            if due || scout.search.is_named() {
                let followed = feeds.iter().filter_map(Feed::session).chain(&self.sighted);
                let others: Vec<_> = followed.cloned().collect();
                found = scout.look(open, &others)?;
            }
            let Some(sighting) = found else {
                at += 1;
                continue;
            };
            self.sighted.push(sighting.binding.session.clone());
            // Who listens ends after the reader does.
            let _ = self.sightings.send(sighting);
            self.looking.remove(at);
        }
        Ok(())
    }
}
