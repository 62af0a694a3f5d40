//! Stage 2, row read: one thread and one connection serve every mirror of a database.
//!
//! Contract: what is read is what lies past each mirror's cursor, whatever the wake said. After an event the
//! commit is still to come (SQLite writes the log, syncs, and only then publishes; the last step makes no
//! event), so the reader chases: it asks `PRAGMA data_version` every `look_us`, later more rarely, until it
//! changes or `settle_ms` is over. Reading once at the event left 137 of 160 rows unseen until the next commit.
//! It never spins: that takes the writer's core and makes its commit five times slower.

use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::degraded::Degraded;
use super::detect::Health;
use super::feed::Feed;
use super::lacking::Lacking;
use super::pressure::LaneSender;
use super::pump::{Occasions, pump};
use super::scout::Scouts;
use super::wake::{Kinds, Wakes};
use crate::config;
use crate::event::{Binding, Sighting, Wake};
use crate::hermes::{Footprint, Limits, Open, Source, SourceError};
use crate::ids::ConversationId;

/// After this long without a change, looks grow rarer.
const EAGER: Duration = Duration::from_millis(50);
/// However quiet the files, a real look is taken this often: a footprint can stay the same across a commit.
const REAL_LOOK: Duration = Duration::from_secs(15);
/// While looks follow one another, the file under the path is taken for the one that is open for so long. What
/// replaces it makes an event, and is asked after at once.
const IDENTIFIED_FOR: Duration = Duration::from_millis(2);
/// A lock that is held for this long is worth a word.
const LONG_LOCK: Duration = Duration::from_secs(3);
/// As many changes in a row that no event announced make the watcher mute.
const MUTE_AFTER: u32 = 3;
/// How soon a lock is tried again.
const SOON: Duration = Duration::from_millis(2);
/// Where nothing wakes it, the reader looks at its own state this often.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// What the pipeline tells the reader.
pub enum Control {
    /// A mirror has its conversation now, and a lane.
    Add {
        /// Its reading half.
        feed: Box<Feed>,
        /// What was sighted for it.
        sighted: Box<Sighting>,
    },
    /// The lane of a mirror was started anew.
    Restart {
        /// Which mirror's.
        conversation: ConversationId,
        /// The new lane.
        lane: LaneSender,
        /// What it has delivered.
        resume: Option<Binding>,
    },
    /// Read no more.
    Stop,
}

/// The stage.
pub struct Reader {
    source: Source,
    detect: config::Detect,
    limits: Limits,
    wakes: Wakes,
    control: Receiver<Control>,
    feeds: Vec<Feed>,
    scouts: Scouts,
    health: Health,
    footprint: Option<Footprint>,
    looked: Instant,
    changed: Instant,
    /// When the file under the path was last found to be the one that is open.
    identified: Option<Instant>,
    /// When the connection to a file that was replaced was let go.
    left: Option<Instant>,
    unannounced: u32,
    occasions: Occasions,
    lacking: Lacking,
    /// Since when it has been locked at every look.
    locked: Option<Instant>,
    /// The state in which the source can't be read, while there is one.
    fault: Option<Degraded>,
    stopped: bool,
}

impl Reader {
    /// Reads `source` for `feeds`, and for those to come that `scouts` look out for.
    #[must_use]
    pub fn new(
        source: Source,
        detect: config::Detect,
        read: &config::Read,
        wakes: Wakes,
        control: Receiver<Control>,
        (feeds, scouts): (Vec<Feed>, Scouts),
        health: Health,
    ) -> Self {
        let now = Instant::now();
        Self {
            source,
            detect,
            limits: Limits { rows: read.batch_rows, bytes: read.batch_bytes },
            wakes,
            control,
            feeds,
            scouts,
            health,
            footprint: None,
            looked: now,
            changed: now,
            identified: None,
            left: None,
            unannounced: 0,
            occasions: Occasions::default(),
            lacking: Lacking::default(),
            locked: None,
            fault: None,
            stopped: false,
        }
    }

    /// Reads until it is told to stop, or every lane has ended.
    pub fn run(&mut self) {
        while self.goes_on() {
            let kinds = self.wakes.wait(self.at_most(LONGEST_WAIT));
            tracing::trace!(announced = kinds.announces_commit(), "woken");
            self.obey(kinds);
            if self.stopped {
                break;
            }
            if kinds.announces_commit() {
                self.chase();
            } else if self.is_due() {
                self.look_unannounced(kinds);
            }
            if self.held_until().is_some_and(|until| until <= Instant::now()) {
                self.look_again();
                self.attempt();
            }
            self.release_when_quiet();
        }
        self.source.close();
    }

    /// Reads what is there, waiting for lanes that are full, and returns.
    pub fn drain(&mut self) {
        while self.goes_on() {
            let kinds = self.wakes.take();
            self.obey(kinds);
            self.source.leave_if_replaced();
            let read = self.source.open().map(Open::look_again).and_then(|()| self.look());
            match read {
                Ok(_) if self.all_read() => break,
                Err(SourceError::Busy(_)) | Ok(_) => {
                    let wait = Duration::from_millis(self.detect.fallback_poll_ms);
                    let _ = self.wakes.wait(self.at_most(wait));
                }
                Err(error) => {
                    self.note(Err(&error));
                    break;
                }
            }
        }
        self.source.close();
    }

    /// When the first of the rows that are held back is to be judged.
    fn held_until(&self) -> Option<Instant> {
        self.feeds.iter().filter_map(Feed::held_until).min()
    }

    /// How long to wait for a wake: `longest`, or until a row that is held back is to be judged. Where it can't be read
    /// by then, that is tried again with the next wake, or soon where it is merely locked.
    fn at_most(&self, longest: Duration) -> Duration {
        let until = self.held_until().filter(|_| self.fault.is_none());
        let left = until.map(|until| until.saturating_duration_since(Instant::now()).max(SOON));
        left.map_or(longest, |left| left.min(longest))
    }

    fn goes_on(&self) -> bool {
        !self.stopped && (self.scouts.are_out() || self.feeds.iter().any(Feed::is_alive))
    }

    fn all_read(&self) -> bool {
        let read = |feed: &Feed| !feed.is_bound() || feed.is_caught_up() || !feed.is_alive();
        !self.scouts.await_feeds() && self.feeds.iter().all(read)
    }

    /// Does what the pipeline and the lanes ask for. Whoever takes wakes has to: room that is not acted upon
    /// would leave a lane that was full without its rows until the next commit.
    fn obey(&mut self, kinds: Kinds) {
        if kinds.has(Wake::Room) {
            self.look_again();
        }
        if kinds.has(Wake::Rescan) {
            self.identified = None;
        }
        while let Ok(order) = self.control.try_recv() {
            match order {
                Control::Stop => self.stopped = true,
                Control::Add { feed, sighted } => {
                    self.scouts.return_from(&sighted);
                    self.feeds.push(*feed);
                    self.occasions = Occasions::default();
                    self.look_again();
                }
                Control::Restart { conversation, lane, resume } => {
                    let mut feeds = self.feeds.iter_mut();
                    if let Some(feed) = feeds.find(|feed| *feed.conversation() == conversation) {
                        feed.restart(lane, resume);
                    }
                    self.occasions = Occasions::default();
                    self.look_again();
                }
            }
        }
    }

    fn look_again(&mut self) {
        self.footprint = None;
        if self.source.is_open()
            && let Ok(open) = self.source.open()
        {
            open.look_again();
        }
    }

    /// Whether a wake without an event is worth a look. While the database is let go, `stat` decides.
    fn is_due(&mut self) -> bool {
        if self.source.is_open() || self.fault.is_some() || self.looked.elapsed() >= REAL_LOOK {
            return true;
        }
        let now = Footprint::of(self.source.path());
        self.footprint.replace(now) != Some(now)
    }

    /// Looks because a timer said so, and learns from what it finds whether events arrive at all.
    fn look_unannounced(&mut self, kinds: Kinds) {
        let found = self.attempt();
        if !found || kinds.has(Wake::Room) || !self.health.is_watching() {
            return;
        }
        self.unannounced += 1;
        if self.unannounced == MUTE_AFTER && self.health.set_mute(true) {
            tracing::warn!(
                database = %self.source.path().display(), state = %Degraded::Mute,
                "changes arrive without file-system events; polling every {} ms", self.detect.poll_ms
            );
        }
    }

    /// Looks until the commit that an event announced can be seen.
    fn chase(&mut self) {
        self.unannounced = 0;
        if self.health.set_mute(false) {
            tracing::info!(database = %self.source.path().display(), "file-system events arrive again");
        }
        let mut event = Instant::now();
        let (mut quiet, mut found, mut seen) = (false, false, false);
        loop {
            // Seen, and nothing was written since the look before: what the events announced is read.
            let changed = self.attempt();
            found |= changed;
            if changed && quiet {
                return;
            }
            seen |= changed;
            let waited = event.elapsed();
            if self.stopped || (waited >= self.settle() && self.left.is_none()) {
                break;
            }
            let look = Duration::from_micros(self.detect.look_us);
            let kinds = if seen {
                // What was announced is most likely what was seen.
                self.wakes.wait(look.max(waited))
            } else {
                std::thread::sleep(if waited < EAGER { look } else { look.max(waited / 16) });
                self.wakes.take()
            };
            self.obey(kinds);
            quiet = !kinds.announces_commit();
            if !quiet {
                (event, seen) = (Instant::now(), false);
            }
        }
        if !found && !self.stopped && self.source.is_open() {
            // What was written is no commit: a rollback, a checkpoint, or another content for the same file, which
            // only a connection that is opened on it can see.
            self.source.close();
            self.attempt();
        }
    }

    /// One look. Returns whether anything had changed.
    fn attempt(&mut self) -> bool {
        if self.identified.is_none_or(|at| at.elapsed() >= IDENTIFIED_FOR) {
            self.identified = Some(Instant::now());
            if self.source.leave_if_replaced() {
                tracing::info!(database = %self.source.path().display(), "the database was replaced; opening it anew");
                self.left = Some(Instant::now());
            }
        }
        // Who replaces a file may still be at it: the log of the old one is removed after.
        if self.left.is_some_and(|left| left.elapsed() < self.settle()) {
            return false;
        }
        self.left = None;
        self.looked = Instant::now();
        match self.look() {
            Ok(changed) => {
                self.note(Ok(()));
                if changed {
                    self.changed = Instant::now();
                }
                changed
            }
            Err(error) => {
                self.note(Err(&error));
                if matches!(error, SourceError::Busy(_)) {
                    self.look_again();
                } else {
                    self.source.close();
                }
                false
            }
        }
    }

    fn settle(&self) -> Duration {
        Duration::from_millis(self.detect.settle_ms)
    }

    fn look(&mut self) -> Result<bool, SourceError> {
        if !self.source.is_open() {
            self.occasions = Occasions::default();
        }
        let open = self.source.open()?;
        if !open.changed()? {
            return Ok(false);
        }
        self.lacking.say(open.path(), open.schema());
        let read = self.scouts.dismiss(open, &mut self.feeds);
        let read = read.and_then(|()| pump(open, &mut self.feeds, self.limits, &mut self.occasions));
        let read = read.and_then(|is_older| self.scouts.look(open, &self.feeds).map(|()| is_older));
        match read {
            // This connection was opened on another content, and may hold a lock that the new one has no use for.
            Ok(true) => self.source.close(),
            Ok(false) => {}
            Err(_) => open.look_again(),
        }
        read.map(|_| true)
    }

    /// Logs a state of the source once when it comes and once when it goes.
    fn note(&mut self, result: Result<(), &SourceError>) {
        let database = self.source.path().display();
        if let Err(SourceError::Busy(_)) = result {
            // Passes within moments, and comes with every long write of Hermes's.
            tracing::debug!(%database, "locked by another process; trying again");
            if self.locked.get_or_insert_with(Instant::now).elapsed() < LONG_LOCK {
                return;
            }
        } else {
            self.locked = None;
        }
        let state = result.err().map(Degraded::from);
        let before = std::mem::replace(&mut self.fault, state);
        if before == state {
            return;
        }
        self.health.set_fault(state);
        match result {
            Ok(()) => {
                tracing::info!(%database, was = before.map(tracing::field::display), "reading the database");
            }
            Err(error) => announce(error),
        }
    }

    /// A held reader keeps Hermes from its own maintenance, and a stale one can poison a replaced database.
    fn release_when_quiet(&mut self) {
        let quiet = self.changed.elapsed() >= Duration::from_millis(self.detect.release_after_ms);
        if quiet && self.source.is_open() {
            // Before the file is let go: a change behind this moment then shows as another footprint.
            self.footprint = Some(Footprint::of(self.source.path()));
            if self.attempt() {
                return;
            }
            self.source.close();
        }
    }
}

fn announce(error: &SourceError) {
    let state = Degraded::from(error);
    if error.is_waiting() {
        tracing::info!(%state, "{error}");
    } else {
        tracing::warn!(%state, "{error}");
    }
}
