//! Stage 2, row read: one thread and one connection serve every mirror of a database.
//!
//! Contract: what is read is what lies past each mirror's cursor, whatever the wake said. After an event the
//! commit is still to come (SQLite writes the log, syncs, and only then publishes; the last step makes no
//! event), so the reader chases: it asks `PRAGMA data_version` every `look_us`, later more rarely, until it
//! changes or `settle_ms` is over. Reading once at the event left 137 of 160 rows unseen until the next commit.
//! It never spins: that takes the writer's core and makes its commit five times slower.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::detect::Health;
use super::feed::{Feed, LaneSender};
use super::wake::{Kinds, Wakes};
use crate::config;
use crate::event::{Binding, Wake};
use crate::hermes::{Footprint, Limits, Open, Source, SourceError};
use crate::ids::{HermesSessionId, MessageId};

/// After this long without a change, looks grow rarer.
const EAGER: Duration = Duration::from_millis(50);
/// However quiet the files, a real look is taken this often: a footprint can stay the same across a commit.
const REAL_LOOK: Duration = Duration::from_secs(15);
/// As many changes in a row that no event announced make the watcher mute.
const MUTE_AFTER: u32 = 3;
/// How long after a session was created its first rows are awaited.
const CONTINUATION_EXPECTED: Duration = Duration::from_mins(1);
/// Where nothing wakes it, the reader looks at its own state this often.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// What the pipeline tells the reader.
pub enum Control {
    /// The lane of a mirror was started anew.
    Restart {
        /// Which mirror.
        feed: usize,
        /// The new lane.
        lane: LaneSender,
        /// What it has delivered.
        resume: Option<Binding>,
    },
    /// A sibling has the older right to a mirror's session.
    Release {
        /// Which mirror.
        feed: usize,
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
    health: Health,
    footprint: Option<Footprint>,
    looked: Instant,
    changed: Instant,
    unannounced: u32,
    continuations: Continuations,
    fault: Option<Fault>,
    stopped: bool,
}

/// A state in which the source can't be read.
struct Fault {
    name: std::mem::Discriminant<SourceError>,
    looks: u64,
}

impl Reader {
    /// Reads `source` for `feeds`.
    #[must_use]
    pub fn new(
        source: Source,
        detect: config::Detect,
        read: &config::Read,
        wakes: Wakes,
        control: Receiver<Control>,
        feeds: Vec<Feed>,
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
            health,
            footprint: None,
            looked: now,
            changed: now,
            unannounced: 0,
            continuations: Continuations::new(),
            fault: None,
            stopped: false,
        }
    }

    /// Reads until it is told to stop, or every lane has ended.
    pub fn run(&mut self) {
        while self.goes_on() {
            let kinds = self.wakes.wait(LONGEST_WAIT);
            self.obey();
            if self.stopped {
                break;
            }
            if kinds.announces_commit() {
                self.chase();
            } else if self.is_due(kinds) {
                self.look_unannounced(kinds);
            }
            self.release_when_quiet();
        }
        self.source.close();
    }

    /// Reads what is there, waiting for lanes that are full, and returns.
    pub fn drain(&mut self) {
        while self.goes_on() {
            self.obey();
            self.source.leave_if_replaced();
            let read = self.source.open().map(Open::look_again).and_then(|()| self.look());
            match read {
                Ok(_) if self.all_read() => break,
                Err(SourceError::Busy(_)) | Ok(_) => {
                    let _ = self.wakes.wait(Duration::from_millis(self.detect.fallback_poll_ms));
                }
                Err(error) => {
                    self.note(Err(&error));
                    break;
                }
            }
        }
        self.source.close();
    }

    fn goes_on(&self) -> bool {
        !self.stopped && self.feeds.iter().any(Feed::is_alive)
    }

    fn all_read(&self) -> bool {
        self.feeds.iter().all(|feed| !feed.is_bound() || feed.is_caught_up() || !feed.is_alive())
    }

    fn obey(&mut self) {
        while let Ok(order) = self.control.try_recv() {
            match order {
                Control::Stop => self.stopped = true,
                Control::Restart { feed, lane, resume } => {
                    if let Some(feed) = self.feeds.get_mut(feed) {
                        feed.restart(lane, resume);
                    }
                    self.look_again();
                }
                Control::Release { feed, resume } => {
                    if let Some(feed) = self.feeds.get_mut(feed) {
                        feed.release(resume);
                    }
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
    fn is_due(&mut self, kinds: Kinds) -> bool {
        if kinds.has(Wake::Room) {
            self.look_again();
        }
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
                database = %self.source.path().display(),
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
        let mut quiet = false;
        loop {
            // Seen, and nothing was written since the look before: what the events announced is read.
            if self.attempt() && quiet {
                return;
            }
            let waited = event.elapsed();
            if waited >= Duration::from_millis(self.detect.settle_ms) || self.stopped {
                return;
            }
            let look = Duration::from_micros(self.detect.look_us);
            std::thread::sleep(if waited < EAGER { look } else { look.max(waited / 16) });
            let kinds = self.wakes.take();
            quiet = !kinds.announces_commit();
            if !quiet {
                event = Instant::now();
            }
            self.obey();
        }
    }

    /// One look. Returns whether anything had changed.
    fn attempt(&mut self) -> bool {
        if self.source.leave_if_replaced() {
            tracing::info!(database = %self.source.path().display(), "the database was replaced; opening it anew");
            self.continuations = Continuations::new();
        }
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

    fn look(&mut self) -> Result<bool, SourceError> {
        let open = self.source.open()?;
        if !open.changed()? {
            return Ok(false);
        }
        let read = pump(open, &mut self.feeds, self.limits, &mut self.continuations);
        if read.is_err() {
            open.look_again();
        }
        read.map(|()| true)
    }

    /// Logs a state of the source once when it comes and once when it goes.
    fn note(&mut self, result: Result<(), &SourceError>) {
        match result {
            Ok(()) => {
                if let Some(fault) = self.fault.take() {
                    let database = self.source.path().display();
                    tracing::info!(%database, looks = fault.looks, "reading the database");
                }
            }
            Err(error) => {
                let name = std::mem::discriminant(error);
                let looks = match &self.fault {
                    Some(fault) if fault.name == name => fault.looks + 1,
                    _ => {
                        announce(error, self.source.path());
                        1
                    }
                };
                self.fault = Some(Fault { name, looks });
            }
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

fn announce(error: &SourceError, database: &Path) {
    let database = database.display();
    match error {
        SourceError::Busy(_) => tracing::debug!(%database, "{error}"),
        _ if error.is_waiting() => tracing::info!(%database, "{error}"),
        _ => tracing::warn!(%database, "{error}"),
    }
}

/// When to ask whether a session was continued in another one.
struct Continuations {
    newest_session: i64,
    /// Until when each change may be a child's first rows.
    expected_until: Instant,
    asked: Instant,
}

impl Continuations {
    fn new() -> Self {
        let now = Instant::now();
        Self { newest_session: -1, expected_until: now, asked: now }
    }

    /// A continuation is a new session, whose rows follow within moments. Between two new sessions the
    /// question would cost each wake as much as there are mirrors.
    fn are_due(&mut self, newest_session: i64) -> bool {
        let now = Instant::now();
        if newest_session != self.newest_session {
            self.newest_session = newest_session;
            self.expected_until = now + CONTINUATION_EXPECTED;
        }
        let due = now <= self.expected_until || now.duration_since(self.asked) >= REAL_LOOK;
        if due {
            self.asked = now;
        }
        due
    }
}

/// Brings every feed as far as the database and its lane allow.
fn pump(
    open: &Open,
    feeds: &mut [Feed],
    limits: Limits,
    continuations: &mut Continuations,
) -> Result<(), SourceError> {
    let continuations_due = continuations.are_due(open.newest_session()?);
    for feed in feeds.iter_mut() {
        feed.expect_more();
        feed.bind(open)?;
    }
    loop {
        while read_behind_cursors(open, feeds, limits)? {}
        let mut went_on = false;
        for feed in feeds.iter_mut().filter(|feed| feed.ready().is_some()) {
            feed.report_usage(open)?;
            if continuations_due {
                went_on |= feed.follow_continuation(open)?;
            }
        }
        if !went_on {
            return Ok(());
        }
    }
}

/// One scan for each distinct cursor, newest first: what just happened is never held up by a backlog.
/// Returns whether there may be more.
fn read_behind_cursors(open: &Open, feeds: &mut [Feed], limits: Limits) -> Result<bool, SourceError> {
    let mut cursors: BTreeMap<MessageId, Vec<HermesSessionId>> = BTreeMap::new();
    for (session, read_to) in feeds.iter().filter_map(Feed::ready) {
        let sessions = cursors.entry(read_to).or_default();
        if !sessions.contains(session) {
            sessions.push(session.clone());
        }
    }
    let mut more = false;
    for (cursor, sessions) in cursors.iter().rev() {
        let scan = open.scan(*cursor, sessions, limits)?;
        for feed in feeds.iter_mut() {
            let Some((_, read_to)) = feed.ready() else { continue };
            if read_to != *cursor {
                continue;
            }
            if feed.take(open, &scan.rows, scan.more)? {
                feed.advance(scan.scanned_to, scan.more);
            }
        }
        more |= scan.more;
    }
    Ok(more)
}
