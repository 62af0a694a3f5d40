//! The search for sessions that have no conversation yet, and so no lane: once one is found, the pipeline is told, has
//! a conversation made, and adds a feed.
//!
//! A scout looks for the session of one mirror, and then looks no more. Rules take every session that fits. They look
//! at the sessions of rows that are new, never through all that there are, and at a start at those that the mirror
//! left unfinished.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::feed::Feed;
use super::pump::Occasions;
use super::search::Search;
use crate::event::Sighting;
use crate::hermes::{Descent, Open, SourceError};
use crate::ids::{HermesSessionId, MessageId};
use crate::state::ledger::Left;

mod rule;

pub use rule::Rule;

/// A session of many in which nothing was said for so long gives its lane back; with the next row it gets another.
const RESTS_AFTER: Duration = Duration::from_hours(1);

/// How often it is written down up to which row was looked, where nothing was sighted.
const NOTED_EVERY: Duration = Duration::from_secs(15);

/// Looks for the session of one mirror.
pub struct Scout {
    mirror: usize,
    purpose: String,
    search: Search,
}

impl Scout {
    /// Looks for what `search` does, for the configuration's `mirror`th.
    #[must_use]
    pub fn new(mirror: usize, purpose: String, search: Search) -> Self {
        Self { mirror, purpose, search }
    }

    fn look(&mut self, open: &Open, others: &[HermesSessionId]) -> Result<Option<Sighting>, SourceError> {
        let Some(binding) = self.search.find(open, None, others)? else { return Ok(None) };
        let started_at = open.session(&binding.session)?.map_or(0.0, |session| session.started_at);
        Ok(Some(Sighting { mirror: self.mirror, purpose: self.purpose.clone(), binding, started_at }))
    }
}

/// What is known of a database from before.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Rows up to here were looked through for sessions; `None` where nobody has looked yet.
    pub looked: Option<MessageId>,
    /// The conversations that were made for sessions that fitted a rule.
    pub left: Vec<Left>,
    /// Sightings that have no conversation yet.
    pub begun: Vec<Sighting>,
}

/// Writes down what was sighted, and up to which row was looked. Returns whether that is done.
pub type Note = Box<dyn Fn(&[Sighting], Option<MessageId>) -> bool + Send>;

/// The scouts and rules of one database; none by default.
pub struct Scouts {
    looking: Vec<Scout>,
    rules: Vec<Rule>,
    /// What was sighted and has no feed yet.
    sighted: Vec<Sighting>,
    known: Known,
    /// The newest row at this look, and the sessions that rules take of those that have rows since the last one.
    newest: MessageId,
    spoken: Vec<Descent>,
    noted: Instant,
    /// Rules have looked since the start.
    is_looking: bool,
    note: Note,
    sightings: UnboundedSender<Sighting>,
    occasions: Occasions,
}

impl Default for Scouts {
    fn default() -> Self {
        Self::new(Default::default(), Known::default(), Box::new(|_, _| true), unbounded_channel().0)
    }
}

impl Scouts {
    /// Sends `looking` out beside the `rules`, to tell what is seen to `sightings`.
    #[must_use]
    pub fn new(
        (looking, rules): (Vec<Scout>, Vec<Rule>),
        mut known: Known,
        note: Note,
        sightings: UnboundedSender<Sighting>,
    ) -> Self {
        let sighted = std::mem::take(&mut known.begun);
        let occasions = Occasions::default();
        let (newest, spoken, noted) = (MessageId::ZERO, Vec::new(), Instant::now());
        let is_looking = false;
        Self { looking, rules, sighted, known, newest, spoken, noted, is_looking, note, sightings, occasions }
    }

    /// Whether there may be more feeds.
    #[must_use]
    pub fn are_out(&self) -> bool {
        !self.looking.is_empty() || !self.rules.is_empty() || self.await_feeds()
    }

    /// Whether something was sighted that has no feed yet.
    #[must_use]
    pub fn await_feeds(&self) -> bool {
        !self.sighted.is_empty()
    }

    /// What was sighted has its feed.
    pub fn return_from(&mut self, sighted: &Sighting) {
        self.sighted.retain(|one| one.purpose != sighted.purpose);
    }

    /// Before the rows that are new are read: lets go of the feeds whose sessions no rule takes any more, so that
    /// nothing is shown of what has become private, and of those in which nothing happens.
    pub fn dismiss(&mut self, open: &Open, feeds: &mut Vec<Feed>) -> Result<(), SourceError> {
        if self.rules.is_empty() {
            return Ok(());
        }
        self.newest = open.newest_row()?;
        // Behind where an older copy of the database ends, all is new.
        let looked = self.known.looked.map_or(self.newest, |looked| looked.min(self.newest));
        self.known.looked = self.known.looked.map(|_| looked);
        self.spoken.clear();
        for session in open.sessions_behind(looked)? {
            let Some(descent) = open.descent(&session)? else { continue };
            let is_taken = self.rules.iter().any(|rule| rule.takes(&descent));
            feeds.retain(|feed| {
                is_taken || !feed.is_of_a_rule() || !feed.shows(&descent) || said_goodbye(feed)
            });
            if is_taken {
                self.spoken.push(descent);
            }
        }
        feeds.retain(|feed| !feed.is_of_a_rule() || !feed.rests(RESTS_AFTER) || said_goodbye(feed));
        Ok(())
    }

    /// Tells what is sighted at this look.
    pub fn look(&mut self, open: &Open, feeds: &[Feed]) -> Result<(), SourceError> {
        if !self.looking.is_empty() {
            let due = self.occasions.are_due(open.newest_session()?) || self.occasions.has_just_begun();
            self.look_for_mirrors(open, feeds, due)?;
        }
        if self.rules.is_empty() { Ok(()) } else { self.look_for_rules(open, feeds) }
    }

    /// Who has sighted something looks no more.
    fn look_for_mirrors(&mut self, open: &Open, feeds: &[Feed], due: bool) -> Result<(), SourceError> {
        let mut at = 0;
        while let Some(scout) = self.looking.get_mut(at) {
            let mut found = None;
            if due || scout.search.is_named() {
                let awaited = self.sighted.iter().map(|sighting| &sighting.binding.session);
                let others: Vec<_> = feeds.iter().filter_map(Feed::session).chain(awaited).cloned().collect();
                found = scout.look(open, &others)?;
            }
            match found.filter(|sighting| (self.note)(std::slice::from_ref(sighting), None)) {
                Some(sighting) => {
                    self.looking.remove(at);
                    self.tell(sighting);
                }
                None => at += 1,
            }
        }
        Ok(())
    }

    fn look_for_rules(&mut self, open: &Open, feeds: &[Feed]) -> Result<(), SourceError> {
        let looked = self.known.looked.unwrap_or(self.newest);
        if self.is_looking && self.newest == looked {
            return Ok(());
        }
        for left in &self.known.left {
            if is_unfinished(open, left)? {
                self.spoken.extend(open.descent(&left.session)?);
            }
        }
        let mut found: Vec<Sighting> = Vec::new();
        for descent in &self.spoken {
            let is_awaited = |one: &Sighting| descent.holds(&one.binding.session);
            if feeds.iter().any(|feed| feed.shows(descent)) || self.sighted.iter().any(is_awaited) {
                continue;
            }
            let Some(rule) = self.rules.iter().find(|rule| rule.takes(descent)) else { continue };
            let Some(sighting) = rule.sight(open, descent, looked)? else { continue };
            if !self.sighted.iter().chain(&found).any(|one| one.purpose == sighting.purpose) {
                found.push(sighting);
            }
        }
        let is_news = !found.is_empty() || !self.is_looking || self.noted.elapsed() >= NOTED_EVERY;
        if is_news && !(self.note)(&found, Some(self.newest)) {
            return Ok(());
        }
        if is_news {
            self.noted = Instant::now();
        }
        if !std::mem::replace(&mut self.is_looking, true) {
            tracing::info!(database = %open.path().display(), after_row = %looked, "looking for sessions that match");
        }
        self.known.looked = Some(self.newest);
        self.known.left.clear();
        for sighting in found {
            self.tell(sighting);
        }
        Ok(())
    }

    fn tell(&mut self, sighting: Sighting) {
        self.sighted.push(sighting.clone());
        // Who listens ends after the reader does.
        let _ = self.sightings.send(sighting);
    }
}

/// A feed is let go of; never true, for what is kept.
fn said_goodbye(feed: &Feed) -> bool {
    tracing::info!(conversation = %feed.conversation(), "nothing more to mirror for now");
    false
}

/// Whether there is more to deliver than was when the mirror ended.
fn is_unfinished(open: &Open, left: &Left) -> Result<bool, SourceError> {
    let Some((session, last)) = &left.at else { return Ok(true) };
    let newest = open.row_from_end(session, MessageId::new(i64::MAX), 0)?;
    Ok(newest.is_some_and(|newest| newest > *last) || open.continuation(session)?.is_some())
}
