//! The reading half of one mirror: which session it follows, how far it has read, and its lane.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::held::Held;
use self::place::Place;
use super::beside::{Seen, Watch};
use super::memory::{Delivered, Memory};
use super::pressure::LaneSender;
use super::search::{Search, TakenBySibling, Target};
use crate::config::History;
use crate::event::{Beside, Binding, Reading, Resume, Rewind};
use crate::hermes::{CompressionLock, Descent, Open, Rewrites, SourceError, Wave};
use crate::ids::{ConversationId, HermesSessionId, MessageId};
use crate::stats::MirrorStats;

mod elsewhere;
mod held;
mod place;
mod take;
mod undo;
mod wave;

/// As many rows that were taken back before they were shown are watched, should they be live again.
const MOST_TAKEN_BACK: usize = 256;

/// One mirror, as the reader sees it.
pub struct Feed {
    conversation: ConversationId,
    search: Search,
    lane: LaneSender,
    memory: Memory,
    watch: Watch,
    resume: Option<Binding>,
    following: Option<Following>,
    undo_note: bool,
    stats: Arc<MirrorStats>,
    is_of_a_rule: bool,
    /// When it was bound, or a row was read.
    heard: Instant,
}

struct Following {
    session: HermesSessionId,
    read_to: MessageId,
    /// How far it had ever read. Rows that were deleted, and an older copy, end before.
    highest: MessageId,
    /// Rows that were taken back before they could be shown.
    taken_back: BTreeSet<MessageId>,
    /// The newest row that is shown, or on its way, and was not taken back when this was last asked.
    newest: Option<MessageId>,
    rewrites: Rewrites,
    /// The row behind `read_to`, while it is held back.
    held: Option<Held>,
    wave: Wave,
    turn_closed: bool,
    caught_up: bool,
    /// The first row of it that was seen.
    first: Option<MessageId>,
    place: Place,
    /// Something beside the rows is still to be told.
    untold: bool,
}

impl Following {
    /// Watches a row that was taken back before it could be shown, in place of the oldest where there are many.
    fn watch_taken_back(&mut self, row: MessageId) {
        self.taken_back.insert(row);
        if self.taken_back.len() > MOST_TAKEN_BACK {
            self.taken_back.pop_first();
        }
    }
}

impl Feed {
    /// A mirror that has a binding from before, or finds its session by `target`.
    #[must_use]
    pub fn new(
        conversation: ConversationId,
        target: Target,
        resume: Option<Binding>,
        lane: LaneSender,
        taken: TakenBySibling,
        delivered: Delivered,
        stats: Arc<MirrorStats>,
    ) -> Self {
        let search = Search::new(conversation.clone(), target, taken);
        // Beyond what waits in the lane, one row is in delivery.
        let memory = Memory::new(delivered, lane.readings.max_capacity() + 1);
        Self {
            conversation,
            search,
            lane,
            memory,
            watch: Watch::default(),
            resume,
            following: None,
            undo_note: false,
            stats,
            is_of_a_rule: false,
            heard: Instant::now(),
        }
    }

    /// The same, where a rule found its session.
    #[must_use]
    pub fn of_a_rule(self, is_of_a_rule: bool) -> Self {
        Self { is_of_a_rule, ..self }
    }

    /// The same, beginning in a session of which nothing was shown as `history` says.
    #[must_use]
    pub fn with_history(mut self, history: Option<History>) -> Self {
        self.search.history = history;
        self
    }

    /// The lane was started anew, and has delivered up to `resume`: its session is taken from there, once it is free.
    pub fn restart(&mut self, lane: LaneSender, resume: Option<Binding>) {
        self.lane = lane;
        self.lane.backlog.set(0);
        self.memory.forget_behind(resume.as_ref().map_or(MessageId::ZERO, |binding| binding.resume.last));
        self.resume = resume;
        self.following = None;
        self.stats.lane_ended();
        self.stats.follows(None);
    }

    /// Whether its lane still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.lane.readings.is_closed()
    }

    /// Whether its session is known by name, so that finding it costs little.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.search.is_named()
    }

    /// Whether it shows a session, or one that this continues, or was made for where it began.
    #[must_use]
    pub fn shows(&self, descent: &Descent) -> bool {
        let is_named = matches!(&self.search.target, Target::Session(named) if descent.holds(named));
        is_named || self.session().is_some_and(|session| descent.holds(session))
    }

    /// Whether a rule found its session, which it lets go of in time.
    #[must_use]
    pub fn is_of_a_rule(&self) -> bool {
        self.is_of_a_rule
    }

    /// Whether all is delivered, and nothing was read for so long.
    #[must_use]
    pub fn rests(&self, quiet: Duration) -> bool {
        let is_empty = self.lane.readings.capacity() == self.lane.readings.max_capacity();
        self.is_caught_up() && is_empty && self.heard.elapsed() >= quiet
    }

    /// The conversation that it feeds.
    #[must_use]
    pub fn conversation(&self) -> &ConversationId {
        &self.conversation
    }

    /// Whether it follows a session.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.following.is_some()
    }

    /// The session it follows and how far it has read, while its lane has room and no row is held back.
    #[must_use]
    pub fn ready(&self) -> Option<(&HermesSessionId, MessageId)> {
        let following = self.following.as_ref().filter(|f| f.held.is_none_or(|held| !held.was_seen))?;
        self.lane.has_room().then_some((&following.session, following.read_to))
    }

    /// The session that it follows, or is to take up again.
    #[must_use]
    pub fn session(&self) -> Option<&HermesSessionId> {
        let following = self.following.as_ref().map(|following| &following.session);
        following.or(self.resume.as_ref().map(|known| &known.session))
    }

    /// Finds the session, if it can be found now, and tells the lane. `others`: sessions of other mirrors of
    /// this process, whose claims may not be laid yet.
    pub fn bind(&mut self, open: &Open, others: &[HermesSessionId]) -> Result<(), SourceError> {
        if self.following.is_some() || !self.lane.has_room() {
            return Ok(());
        }
        let rewound = self.find_what_is_left(open)?;
        let Some(binding) = self.search.find(open, self.resume.as_ref(), others)? else { return Ok(()) };
        self.begin(open, binding)?;
        if let Some(rewind) = rewound {
            self.memory.rewind_to(rewind.row);
            self.send(Reading::Rewound(rewind));
        }
        Ok(())
    }

    /// Begins to follow a session, and tells the lane, which has room.
    fn begin(&mut self, open: &Open, mut binding: Binding) -> Result<(), SourceError> {
        let last = binding.resume.last;
        // Asked before the first row: a row that is committed in between then lies behind this place.
        let newest = open.newest_row()?;
        let first = open.first_row(&binding.session)?;
        let before_first = first.map_or(newest, |first| MessageId::new(first.get().saturating_sub(1)));
        let (mut rewrites, mut taken_back) = (Rewrites::default(), BTreeSet::new());
        if last != MessageId::ZERO {
            let past = open.past(&binding.session, last, &|range| self.memory.range(range))?;
            rewrites = past.rewrites;
            // What was taken back in history that is not shown stays so.
            if !binding.resume.begins {
                open.recover_turn(&binding.session, &past.repeated, &mut binding.resume)?;
                taken_back = self.taken_back_in(open, &binding.session)?;
            }
        }
        if binding.resume.begins {
            binding.resume.closed_turns = Some(open.closed_turns(&binding.session, last)?);
        }
        tracing::info!(
            conversation = %self.conversation, session = %binding.session, after_row = %last, "mirroring"
        );
        self.stats.read_to(last.max(before_first));
        self.following = Some(Following {
            session: binding.session.clone(),
            read_to: last.max(before_first),
            highest: last.max(before_first),
            taken_back,
            newest: Some(last),
            rewrites,
            held: None,
            wave: Wave::default(),
            turn_closed: false,
            caught_up: false,
            first,
            place: Place::Unchecked,
            untold: false,
        });
        self.watch = Watch::default();
        self.lane.backlog.set(open.rows_behind(&binding.session, last.max(before_first))?);
        self.search.is_over();
        self.send(Reading::Bound(binding));
        Ok(())
    }

    /// The rows of a session that an earlier run passed as taken back.
    fn taken_back_in(
        &self,
        open: &Open,
        session: &HermesSessionId,
    ) -> Result<BTreeSet<MessageId>, SourceError> {
        let mut rows = BTreeSet::new();
        for row in self.memory.taken_back(MOST_TAKEN_BACK) {
            if open.session_of(row)?.as_ref() == Some(session) {
                rows.insert(row);
            }
        }
        Ok(rows)
    }

    /// Where the session bound before is no longer there, an older copy of the database may hold one that it
    /// continued: that is taken up again, behind the last row that both have.
    fn find_what_is_left(&mut self, open: &Open) -> Result<Option<Rewind>, SourceError> {
        let Some(known) = &self.resume else { return Ok(None) };
        if open.session(&known.session)?.is_some() {
            return Ok(None);
        }
        let (row, _) = self.memory.shared_with(open, known.resume.last)?;
        let Some(session) = open.session_of(row)? else { return Ok(None) };
        let closed_turns = open.closed_turns(&session, row)?;
        tracing::warn!(
            conversation = %self.conversation, session = %known.session, %row, left = %session,
            "the session is gone from the database, which holds the one it continued; going on in that"
        );
        let resume = Resume { last: row, ..Resume::default() };
        self.resume = Some(Binding { session: session.clone(), resume });
        Ok(Some(Rewind { row, session, closed_turns }))
    }

    /// The database has changed, and holds rows up to `newest`: there may be more to read.
    pub fn expect_more(&mut self, newest: Option<MessageId>) {
        self.stats.newest(newest.unwrap_or(MessageId::ZERO));
        if let Some(following) = &mut self.following {
            following.caught_up = false;
            following.place = Place::Unchecked;
            if let Some(held) = &mut following.held {
                held.was_seen = false;
            }
        }
    }

    /// When the row that is held back is to be judged, whatever has come by then; `None` where none is, or the lane is
    /// full.
    #[must_use]
    pub fn held_until(&self) -> Option<Instant> {
        let held = self.following.as_ref().and_then(|following| following.held)?;
        self.lane.has_room().then_some(held.until)
    }

    /// Whether there was nothing more to read and to tell at the last scan.
    #[must_use]
    pub fn is_caught_up(&self) -> bool {
        self.following.as_ref().is_some_and(|f| f.caught_up && !f.turn_closed && !f.untold)
    }

    /// Once it has caught up: tells what a closed turn has used.
    pub fn report_usage(&mut self, open: &Open) -> Result<(), SourceError> {
        let Some(following) = &mut self.following else { return Ok(()) };
        if following.turn_closed && self.lane.readings.capacity() > 0 {
            let usage = open.usage(&following.session)?;
            following.turn_closed = false;
            self.send(Reading::Usage(usage));
        }
        Ok(())
    }

    /// The session to ask after beside its rows: one of which there is news, or of which something is still to be
    /// told; any if `everyone`.
    #[must_use]
    pub fn watched(&self, everyone: bool) -> Option<&HermesSessionId> {
        let following = self.following.as_ref()?;
        (everyone || following.untold || self.has_news()).then_some(&following.session)
    }

    /// Tells of a compaction that has begun.
    pub fn tell_beginning(&mut self, locks: Option<&[CompressionLock]>) {
        let Some(following) = &self.following else { return };
        if let Some(lock) = self.watch.beginning(&following.session, locks)
            && self.lane.has_room()
        {
            self.watch.begun(lock);
            self.send(Reading::Beside(Beside::Compacting));
        }
    }

    /// Tells what else has changed, once it has caught up: behind all rows that were there when it was looked at.
    pub fn tell_beside(&mut self, open: &Open, seen: &Seen) {
        let Some(following) = self.following.as_mut().filter(|following| following.caught_up) else { return };
        let session = following.session.clone();
        self.watch.see(&session, seen);
        while let Some(news) = self.watch.news(&session, seen) {
            following.untold = !self.lane.has_room();
            if following.untold {
                return;
            }
            self.watch.told(&news);
            let news = match news {
                Beside::Title(title) => Beside::Title(open.name(&session, &title).unwrap_or(title)),
                other => other,
            };
            self.lane.send(Reading::Beside(news));
        }
        following.untold = false;
    }

    fn send(&self, reading: Reading) {
        match &reading {
            Reading::Row(row) => {
                self.stats.row_read(row.id, row.timestamp);
                self.stats.read_to(row.id);
            }
            Reading::Bound(Binding { session, .. }) | Reading::Continued(session) => {
                self.stats.follows(Some(session.clone()));
            }
            Reading::Rewound(_) | Reading::Usage(_) | Reading::Beside(_) => {}
        }
        self.lane.send(reading);
    }
}
