//! The reading half of one mirror: which session it follows, how far it has read, and its lane.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use self::place::Place;
use super::beside::{Seen, Watch};
use super::memory::{Delivered, Memory};
use super::pressure::LaneSender;
use super::search::{Search, TakenBySibling, Target};
use crate::config::History;
use crate::event::{Beside, Binding, Reading, Resume, Row, Standing};
use crate::hermes::{CompressionLock, Descent, Open, Rewrites, SourceError, Wave, turn};
use crate::ids::{ConversationId, HermesSessionId, MessageId};

mod elsewhere;
mod place;
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
    wave: Wave,
    turn_closed: bool,
    caught_up: bool,
    /// The first row of it that was seen.
    first: Option<MessageId>,
    place: Place,
    /// Something beside the rows is still to be told.
    untold: bool,
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

    /// The session it follows and how far it has read, while its lane has room.
    #[must_use]
    pub fn ready(&self) -> Option<(&HermesSessionId, MessageId)> {
        let following = self.following.as_ref()?;
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
        if let Some(row) = rewound {
            self.memory.rewind_to(row);
            self.send(Reading::Rewound(row));
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
                taken_back = past.taken_back;
            }
        }
        if binding.resume.begins {
            binding.resume.closed_turns = Some(open.closed_turns(&binding.session, last)?);
        }
        tracing::info!(
            conversation = %self.conversation, session = %binding.session, after_row = %last, "mirroring"
        );
        self.following = Some(Following {
            session: binding.session.clone(),
            read_to: last.max(before_first),
            highest: last.max(before_first),
            taken_back,
            newest: Some(last),
            rewrites,
            wave: Wave::default(),
            turn_closed: false,
            caught_up: false,
            first,
            place: Place::Unchecked,
            untold: false,
        });
        self.watch = Watch::new();
        self.lane.backlog.set(open.rows_behind(&binding.session, last.max(before_first))?);
        self.search.is_over();
        self.send(Reading::Bound(binding));
        Ok(())
    }

    /// Where the session bound before is no longer there, an older copy of the database may hold one that it
    /// continued: that is taken up again, behind the last row that both have. Returns this row.
    fn find_what_is_left(&mut self, open: &Open) -> Result<Option<MessageId>, SourceError> {
        let Some(known) = &self.resume else { return Ok(None) };
        if open.session(&known.session)?.is_some() {
            return Ok(None);
        }
        let (row, _) = self.memory.shared_with(open, known.resume.last)?;
        let Some(session) = open.session_of(row)? else { return Ok(None) };
        tracing::warn!(
            conversation = %self.conversation, session = %known.session, %row, left = %session,
            "the session is gone from the database, which holds the one it continued; going on in that"
        );
        self.resume = Some(Binding { session, resume: Resume { last: row, ..Resume::default() } });
        Ok(Some(row))
    }

    /// Takes the rows of its session that one scan found. Returns whether it took them all.
    pub fn take(&mut self, open: &Open, rows: &[Row], more: bool) -> Result<bool, SourceError> {
        let Some(session) = self.following.as_ref().map(|f| f.session.clone()) else { return Ok(true) };
        let mine: Vec<&Row> = rows.iter().filter(|row| row.session == session).collect();
        if !mine.is_empty() && !self.may_take(open)? {
            return Ok(false);
        }
        for (at, row) in mine.iter().enumerate() {
            let next = match mine.get(at + 1) {
                Some(next) => Some(next.timestamp),
                None if more => open.next_timestamp(&session, row.id)?,
                None => None,
            };
            if !self.take_row(open, row, next)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn take_row(&mut self, open: &Open, row: &Row, next: Option<f64>) -> Result<bool, SourceError> {
        let Some(following) = &mut self.following else { return Ok(true) };
        if row.id <= following.read_to {
            return Ok(true);
        }
        if !self.lane.has_room() {
            return Ok(false);
        }
        let mut row = row.clone();
        if row.standing != Standing::TakenBack {
            // A lock that interrupts the judging must leave no half of it.
            let mut rewrites = following.rewrites.clone();
            open.judge(&mut rewrites, &mut row, next, &|range| self.memory.range(range))?;
            following.rewrites = rewrites;
        } else if following.taken_back.len() < MOST_TAKEN_BACK {
            following.taken_back.insert(row.id);
        }
        if row.id <= following.highest && self.memory.holds(row.id) {
            // Read again for the sake of one before it.
            following.read_to = row.id;
            return Ok(true);
        }
        self.heard = Instant::now();
        self.memory.note(row.id, row.trace);
        self.watch.note(&row);
        following.read_to = row.id;
        following.first.get_or_insert(row.id);
        if row.standing != Standing::TakenBack {
            following.newest = following.newest.max(Some(row.id));
        }
        following.highest = following.highest.max(row.id);
        following.turn_closed |= row.standing == Standing::New && turn::closes(&row);
        match row.standing {
            Standing::New => self.lane.recall.put(row.id),
            // Its original may wait on the lane, and is all that will be shown of the two.
            Standing::Repeated => self.lane.recall.keep(),
            Standing::TakenBack | Standing::Summary(_) => {}
        }
        self.watch_for_wave(&row);
        tracing::trace!(conversation = %self.conversation, row = %row.id, "read");
        self.send(Reading::Row(row));
        Ok(true)
    }

    /// All rows up to `scanned_to` were looked at, and none of its session is left behind.
    /// `more`: a limit ended the scan.
    pub fn advance(&mut self, scanned_to: MessageId, more: bool) {
        if let Some(following) = &mut self.following {
            following.read_to = scanned_to;
            following.highest = following.highest.max(scanned_to);
            following.caught_up = !more;
            if !more {
                let waiting = self.lane.readings.max_capacity() - self.lane.readings.capacity();
                self.lane.backlog.at_most(waiting as u64);
            }
        }
    }

    /// The database has changed: there may be more to read.
    pub fn expect_more(&mut self) {
        if let Some(following) = &mut self.following {
            following.caught_up = false;
            following.place = Place::Unchecked;
        }
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

    /// The session to ask after beside its rows: one in which something happens, or any where that is `due`.
    #[must_use]
    pub fn watched(&self, due: bool) -> Option<&HermesSessionId> {
        let following = self.following.as_ref()?;
        (due || following.untold || self.watch.is_awake()).then_some(&following.session)
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
            // Room was asked for, as in `send`.
            let _ = self.lane.readings.try_send(Reading::Beside(news));
        }
        following.untold = false;
    }

    fn send(&self, reading: Reading) {
        if let Reading::Row(row) = &reading {
            self.lane.waiting.fetch_add(row.bytes(), Ordering::SeqCst);
        }
        // Room was asked for, and only this thread sends. A lane that has ended is found by `is_alive`.
        let _ = self.lane.readings.try_send(reading);
    }
}
