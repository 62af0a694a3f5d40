//! What the stages count as rows pass by, so that somebody can watch.
//!
//! Each figure is one relaxed atomic, set where the thing happens. For a row nothing is locked or allocated, nobody is
//! woken and nothing is written. All of it begins anew with the process.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::hooks::{Details, Kind, Teller};
use crate::ids::{ConversationId, HermesSessionId, MessageId, ResponseId};
use crate::stage::degraded::{Current, Degraded};
use crate::stage::deliver::now_ms;
use crate::stage::detect::Health;

mod latency;

pub use latency::{BOUNDS_US, Latency};

/// For how long it is worth telling somebody of a row, in ms.
const NEWS_MS: i64 = 60_000;

/// The figures of a pipeline.
#[derive(Debug)]
pub struct Stats {
    /// Where it delivers to.
    pub server: String,
    teller: Teller,
    sources: Mutex<Vec<Arc<SourceStats>>>,
    mirrors: Mutex<Vec<Weak<MirrorStats>>>,
}

/// What is known of a database that is read.
#[derive(Debug)]
pub struct SourceStats {
    /// Where it is.
    pub database: PathBuf,
    /// How it stands.
    pub health: Health,
}

impl Stats {
    /// The figures of a pipeline without sources and mirrors, which tells `teller` what happens.
    #[must_use]
    pub fn new(server: String, teller: Teller) -> Self {
        Self { server, teller, sources: Mutex::default(), mirrors: Mutex::default() }
    }

    /// Those of one more source.
    #[must_use]
    pub fn add_source(&self, database: PathBuf) -> Arc<SourceStats> {
        let source = Arc::new(SourceStats { database, health: Health::telling(self.teller.clone()) });
        locked(&self.sources).push(Arc::clone(&source));
        source
    }

    /// Those of the sources, in the order in which they were added.
    #[must_use]
    pub fn sources(&self) -> Vec<Arc<SourceStats>> {
        locked(&self.sources).clone()
    }

    /// Those of one more mirror, which reads `source`. They are shown for as long as somebody has them.
    #[must_use]
    pub fn add(&self, conversation: ConversationId, source: &Arc<SourceStats>) -> Arc<MirrorStats> {
        let stats = MirrorStats::new(conversation, Arc::clone(source), self.teller.clone());
        let stats = Arc::new(stats);
        locked(&self.mirrors).push(Arc::downgrade(&stats));
        stats
    }

    /// Those of the mirrors there are, in the order in which they were added.
    #[must_use]
    pub fn mirrors(&self) -> Vec<Arc<MirrorStats>> {
        let mut mirrors = locked(&self.mirrors);
        mirrors.retain(|stats| stats.strong_count() > 0);
        mirrors.iter().filter_map(Weak::upgrade).collect()
    }
}

/// The figures of one mirror, which its feed and its lane share.
#[derive(Debug)]
pub struct MirrorStats {
    conversation: ConversationId,
    /// Where it reads.
    pub source: Arc<SourceStats>,
    teller: Teller,
    /// Changes with the session, never with a row.
    session: Mutex<Option<HermesSessionId>>,
    /// Why nothing is delivered.
    held: Current,
    /// Why nothing is written down.
    unwritten: Current,
    /// The newest row of the database, whoever's it is.
    newest: AtomicI64,
    /// How far it has read: rows of its own and of others.
    read_to: AtomicI64,
    rows_read: AtomicU64,
    rows_passed: AtomicU64,
    last_row: AtomicI64,
    last_row_at_ms: AtomicI64,
    /// When Hermes says the row was written that the lane has in hand; 0 between two.
    in_hand_at_ms: AtomicI64,
    /// Items that were sent and acknowledged.
    pub delivered: Count,
    /// Items that were found to be there already.
    pub found: Count,
    /// How often the conversation was read back.
    pub read_backs: Count,
    /// Items that the server will never take.
    pub dead_letters: Count,
    /// Attempts that failed and were, or will be, made again.
    pub failed_attempts: Count,
    /// Secrets that were masked.
    pub masked: Arc<AtomicU64>,
    /// From the reading of a row to the acknowledgement of each of its items that was sent.
    pub latency: Latency,
}

impl MirrorStats {
    fn new(conversation: ConversationId, source: Arc<SourceStats>, teller: Teller) -> Self {
        Self {
            conversation,
            source,
            teller,
            session: Mutex::default(),
            held: Current::default(),
            unwritten: Current::default(),
            newest: AtomicI64::new(0),
            read_to: AtomicI64::new(0),
            rows_read: AtomicU64::new(0),
            rows_passed: AtomicU64::new(0),
            last_row: AtomicI64::new(0),
            last_row_at_ms: AtomicI64::new(0),
            in_hand_at_ms: AtomicI64::new(0),
            delivered: Count::default(),
            found: Count::default(),
            read_backs: Count::default(),
            dead_letters: Count::default(),
            failed_attempts: Count::default(),
            masked: Arc::default(),
            latency: Latency::default(),
        }
    }

    /// A session is followed from now on, or none.
    pub fn follows(&self, session: Option<HermesSessionId>) {
        *locked(&self.session) = session;
    }

    /// The feed has put a row on the lane. `timestamp` is the row's own, in s since the epoch.
    pub fn row_read(&self, row: MessageId, timestamp: f64) {
        self.last_row.store(row.get(), Ordering::Relaxed);
        self.last_row_at_ms.store(to_ms(timestamp), Ordering::Relaxed);
        self.rows_read.fetch_add(1, Ordering::Relaxed);
    }

    /// The newest row that the database holds.
    pub fn newest(&self, row: MessageId) {
        self.newest.store(row.get(), Ordering::Relaxed);
    }

    /// The feed has come so far in the database.
    pub fn read_to(&self, row: MessageId) {
        self.read_to.store(row.get(), Ordering::Relaxed);
    }

    /// The lane takes a row.
    pub fn row_taken(&self, timestamp: f64) {
        self.in_hand_at_ms.store(to_ms(timestamp), Ordering::Relaxed);
    }

    /// The lane has done all there was to do about the row.
    pub fn row_passed(&self) {
        self.in_hand_at_ms.store(0, Ordering::Relaxed);
        self.rows_passed.fetch_add(1, Ordering::Relaxed);
    }

    /// What was on the lane is read again, on another one; the lane that was there has ended.
    pub fn lane_ended(&self) {
        self.in_hand_at_ms.store(0, Ordering::Relaxed);
        self.rows_passed.store(self.rows_read.load(Ordering::Relaxed), Ordering::Relaxed);
        self.held.set(None);
        self.unwritten.set(None);
    }

    /// Nothing is delivered from now on, for this reason; or it is again.
    pub fn hold(&self, why: Option<Degraded>) {
        self.tell_why(self.held.set(why));
    }

    /// Nothing can be written down from now on; or it can again.
    pub fn leave_unwritten(&self, unwritten: bool) {
        self.tell_why(self.unwritten.set(unwritten.then_some(Degraded::Unwritten)));
    }

    fn tell_why(&self, why: Option<Degraded>) {
        if let Some(why) = why {
            self.teller.tell(Kind::Degraded, || self.details(("REASON", why.name().to_owned())));
        }
    }

    /// A turn has ended, and its last item is delivered.
    pub fn turn_ended(&self, turn: &ResponseId) {
        self.tell_of_turn(Kind::TurnEnd, turn);
    }

    /// The model has asked the person something.
    pub fn waits_for_the_person(&self, turn: &ResponseId) {
        self.tell_of_turn(Kind::Waiting, turn);
    }

    /// What a backlog holds, or an earlier run has left, is no news.
    fn tell_of_turn(&self, kind: Kind, turn: &ResponseId) {
        let written_ms = match self.in_hand_at_ms.load(Ordering::Relaxed) {
            0 => self.last_row_at_ms.load(Ordering::Relaxed),
            in_hand => in_hand,
        };
        if now_ms().saturating_sub(written_ms) <= NEWS_MS {
            self.teller.tell(kind, || self.details(("TURN", turn.to_string())));
        }
    }

    fn details(&self, what: (&'static str, String)) -> Details {
        let session = locked(&self.session).as_ref().map(|session| ("SESSION", session.to_string()));
        let conversation = ("CONVERSATION", self.conversation.to_string());
        [Some(conversation), session, Some(what)].into_iter().flatten().collect()
    }

    /// An item was sent and acknowledged, so long after its row was read.
    pub fn item_delivered(&self, after: Duration) {
        self.delivered.one_more();
        self.latency.note(after);
    }

    /// All of it as it is now.
    #[must_use]
    pub fn look(&self) -> Look {
        let load = |figure: &AtomicI64| figure.load(Ordering::Relaxed);
        let rows_read = self.rows_read.load(Ordering::Relaxed);
        Look {
            conversation: self.conversation.clone(),
            session: locked(&self.session).clone(),
            held: self.held.get().or_else(|| self.unwritten.get()),
            newest: load(&self.newest),
            read_to: load(&self.read_to),
            rows_read,
            rows_waiting: rows_read.saturating_sub(self.rows_passed.load(Ordering::Relaxed)),
            last_row: load(&self.last_row),
            last_row_at_ms: load(&self.last_row_at_ms),
            in_hand_at_ms: load(&self.in_hand_at_ms),
        }
    }
}

/// What of a mirror's figures changes together, at one moment.
#[derive(Clone, Debug)]
pub struct Look {
    /// The conversation.
    pub conversation: ConversationId,
    /// The session that is followed.
    pub session: Option<HermesSessionId>,
    /// Why nothing is delivered.
    pub held: Option<Degraded>,
    /// The newest row of the database, whoever's it is.
    pub newest: i64,
    /// How far it has read there.
    pub read_to: i64,
    /// Rows that were put on the lane.
    pub rows_read: u64,
    /// Those of them that are still there.
    pub rows_waiting: u64,
    /// The last of them; 0 for none.
    pub last_row: i64,
    /// When Hermes says it was written.
    pub last_row_at_ms: i64,
    /// When Hermes says the row was written that is being delivered; 0 for none.
    pub in_hand_at_ms: i64,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// It happened once more.
    pub fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How often so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each use is one step, so a stage that failed has left nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "a time out of range is shown as the nearest one that is not"
)]
fn to_ms(seconds: f64) -> i64 {
    (seconds * 1_000.0) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::hooks::hooks;

    #[test]
    fn rows_wait_between_the_feed_and_the_end_of_the_lane() {
        let all = Stats::new(String::new(), Teller::default());
        let stats = all.add(ConversationId::new("c"), &all.add_source(PathBuf::new()));
        stats.row_read(MessageId::new(7), 1.5);
        stats.row_read(MessageId::new(9), 2.5);
        stats.row_taken(1.5);
        let look = stats.look();
        assert_eq!((look.rows_read, look.rows_waiting, look.last_row), (2, 2, 9));
        assert_eq!((look.last_row_at_ms, look.in_hand_at_ms), (2_500, 1_500));
        stats.row_passed();
        assert_eq!((stats.look().rows_waiting, stats.look().in_hand_at_ms), (1, 0));
        stats.lane_ended();
        assert_eq!(stats.look().rows_waiting, 0, "they are read again");
    }

    #[tokio::test]
    async fn what_an_earlier_run_left_is_no_news() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("told");
        let argv = ["sh", "-c", "echo $HERMES_MIRROR_TURN >> $0"].map(str::to_owned);
        let argv = argv.into_iter().chain([file.display().to_string()]).collect();
        let (teller, hooks) = hooks(&config::Hooks { turn_end: Some(argv), ..config::Hooks::default() });
        let running = hooks.start();
        let all = Stats::new(String::new(), teller);
        let stats = all.add(ConversationId::new("c"), &all.add_source(PathBuf::new()));
        stats.turn_ended(&ResponseId::new("left"));
        tokio::task::yield_now().await;
        #[allow(clippy::cast_precision_loss, reason = "ms since the epoch are far below 2^52")]
        stats.row_read(MessageId::new(1), now_ms() as f64 / 1_000.0);
        stats.turn_ended(&ResponseId::new("new"));
        running.finish().await;
        assert_eq!(crate::state::dir::read(&file).as_deref(), Some("new\n"));
    }

    #[test]
    fn a_mirror_is_shown_for_as_long_as_it_is_there() {
        let stats = Stats::new(String::new(), Teller::default());
        let source = stats.add_source(PathBuf::new());
        let [one, other] = ["1", "2"].map(|id| stats.add(ConversationId::new(id), &source));
        let shown =
            |stats: &Stats| stats.mirrors().iter().map(|one| one.look().conversation).collect::<Vec<_>>();
        assert_eq!(shown(&stats), [ConversationId::new("1"), ConversationId::new("2")]);
        drop(one);
        assert_eq!(shown(&stats), [ConversationId::new("2")]);
        drop(other);
    }
}
