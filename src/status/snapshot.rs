//! How a pipeline stands at one moment: what the JSON of the status holds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};

use crate::stage::degraded::Degraded;
use crate::stage::deliver::now_ms;
use crate::stats::{BOUNDS_US, Latency, Look, MirrorStats, SourceStats, Stats};

/// The version of the JSON. Keys may be added within one; none is taken away or changes its meaning.
pub const VERSION: u32 = 1;

/// A pipeline's figures, and what does not change about it.
#[derive(Debug)]
pub struct Asked {
    stats: Arc<Stats>,
    page: Option<SocketAddr>,
    started_ms: i64,
}

impl Asked {
    /// A pipeline that starts now, with its page.
    pub fn new(stats: Arc<Stats>, page: Option<SocketAddr>) -> Self {
        Self { stats, page, started_ms: now_ms() }
    }

    /// How it stands now.
    pub fn snapshot(&self) -> Snapshot {
        let (stats, now_ms) = (&self.stats, now_ms());
        let sources: Vec<_> = stats.sources().iter().map(|source| SourceStatus::of(source)).collect();
        let mirrors: Vec<_> = stats.mirrors().iter().map(|mirror| MirrorStatus::of(mirror, now_ms)).collect();
        Snapshot {
            version: VERSION,
            running: true,
            well: sources.iter().all(|source| source.fault.is_none())
                && mirrors.iter().all(|mirror| mirror.state.is_well()),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started_ms: self.started_ms,
            now_ms,
            page: self.page.map(|address| format!("http://{address}/")),
            server: stats.server.clone(),
            sources,
            mirrors,
        }
    }
}

/// How a pipeline stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`VERSION`].
    pub version: u32,
    /// Always true: who does not run does not answer.
    pub running: bool,
    /// The sources are read, and no mirror is held, parked or degraded.
    pub well: bool,
    /// The program's version.
    pub program: String,
    /// The process.
    pub pid: u32,
    /// When it started, in ms since the epoch, as all times here.
    pub started_ms: i64,
    /// When this was true.
    pub now_ms: i64,
    /// The address of the page that shows this.
    pub page: Option<String>,
    /// The server's address.
    pub server: String,
    /// Where it reads.
    pub sources: Vec<SourceStatus>,
    /// One for each conversation.
    pub mirrors: Vec<MirrorStatus>,
}

impl Snapshot {
    /// It as JSON.
    #[must_use]
    pub fn json(&self) -> String {
        // It is made of strings and numbers, which can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// How the source stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// The path of state.db.
    pub database: String,
    /// Why it can't be read: `missing`, `no tables`, `locked`, `damaged`, `unreadable`, `sealed` or `failing`.
    pub fault: Option<String>,
    /// Whether events announce its changes; if not, a timed poll finds them.
    pub events: bool,
}

impl SourceStatus {
    fn of(stats: &SourceStats) -> Self {
        Self {
            database: stats.database.display().to_string(),
            fault: stats.health.fault().map(|fault| fault.name().to_owned()),
            events: stats.health.sees_events(),
        }
    }
}

/// What a mirror does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It has no session yet.
    Discovering,
    /// All that was read is delivered.
    Live,
    /// Rows wait to be delivered.
    CatchingUp,
    /// The server takes nothing, for the reason that is given.
    Held,
    /// The server has not known the conversation for long, and is asked rarely.
    Parked,
    /// The source can't be read, or the mirror's own state not be written, for the reason that is given.
    Degraded,
}

impl State {
    /// All of them, with their names in the JSON.
    pub const ALL: [(Self, &str); 6] = [
        (Self::Discovering, "discovering"),
        (Self::Live, "live"),
        (Self::CatchingUp, "catching_up"),
        (Self::Held, "held"),
        (Self::Parked, "parked"),
        (Self::Degraded, "degraded"),
    ];

    /// Whether nothing is amiss.
    #[must_use]
    pub fn is_well(self) -> bool {
        matches!(self, Self::Discovering | Self::Live | Self::CatchingUp)
    }

    fn of(look: &Look, fault: Option<Degraded>, behind: u64) -> (Self, Option<Degraded>) {
        match look.held {
            Some(Degraded::Parked) => (Self::Parked, None),
            Some(why @ (Degraded::ServerAway | Degraded::LoggedOut | Degraded::NoConversation)) => {
                (Self::Held, Some(why))
            }
            other => match (other.or(fault), &look.session) {
                (Some(why), _) => (Self::Degraded, Some(why)),
                (None, None) => (Self::Discovering, None),
                (None, Some(_)) if behind > 0 => (Self::CatchingUp, None),
                (None, Some(_)) => (Self::Live, None),
            },
        }
    }
}

/// How a mirror stands. What is counted is counted since the process started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MirrorStatus {
    /// The conversation.
    pub conversation: String,
    /// Where it reads.
    pub database: String,
    /// The session that is followed.
    pub session: Option<String>,
    /// What it does.
    pub state: State,
    /// Why, where it is held (`server away`, `log in`, `no conversation`) or degraded (a fault of the source, or
    /// `unwritten`).
    pub reason: Option<String>,
    /// The last row of the session that was read.
    pub last_row: Option<LastRow>,
    /// How many rows, and how far behind.
    pub rows: Rows,
    /// What became of items.
    pub items: Items,
    /// Attempts to deliver that failed, and were or will be made again.
    pub failed_attempts: u64,
    /// How often the conversation was read back, to see whether something is there already.
    pub read_backs: u64,
    /// Secrets that were masked.
    pub secrets_masked: u64,
    /// How long it took from the reading of a row to the server's acknowledgement of each of its items.
    pub read_to_acknowledged: Quantiles,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRow {
    /// Its id in Hermes's database.
    pub id: i64,
    /// When Hermes says it was written.
    pub at_ms: i64,
}

/// Rows of the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rows {
    /// Rows that were read.
    pub read: u64,
    /// Those of them that are not delivered.
    pub waiting: u64,
    /// Rows of the database that were not looked at yet, of whichever session they are.
    pub unread_at_most: u64,
    /// How old the row is that is being delivered, by its own time.
    pub age_ms: Option<i64>,
}

/// Items of the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Items {
    /// Sent and acknowledged.
    pub delivered: u64,
    /// Found by read-back, and so not sent again.
    pub found: u64,
    /// Refused for good, and set aside.
    pub dead_letters: u64,
}

/// A histogram of times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantiles {
    /// How many there are.
    pub count: u64,
    /// All of them added up, in us.
    pub sum_us: u64,
    /// How many there are in each range, the shortest first.
    pub buckets: Vec<Bucket>,
}

/// A range of times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Its longest time, in us; none for the last range, which has no end.
    pub at_most_us: Option<u64>,
    /// How many are longer than those of the range before, and no longer than this.
    pub count: u64,
}

impl Quantiles {
    fn of(latency: &Latency) -> Self {
        let bounds = BOUNDS_US.into_iter().map(Some).chain([None]);
        let buckets: Vec<_> =
            bounds.zip(latency.counts()).map(|(at_most_us, count)| Bucket { at_most_us, count }).collect();
        let count = buckets.iter().map(|bucket| bucket.count).sum();
        Self { count, sum_us: latency.sum_us(), buckets }
    }

    /// The end of the range in which the last of the shortest so many of a hundred stands; `None` where there are none, or it has no end.
    #[must_use]
    pub fn within_us(&self, percent: u64) -> Option<u64> {
        let wanted = (self.count.saturating_mul(percent)).div_ceil(100).max(1);
        let mut passed = 0;
        let found = self.buckets.iter().find(|bucket| {
            passed += bucket.count;
            passed >= wanted
        });
        found?.at_most_us
    }
}

impl MirrorStatus {
    fn of(mirror: &MirrorStats, now_ms: i64) -> Self {
        let (look, source) = (mirror.look(), &mirror.source);
        let unread = if look.session.is_some() { look.newest.saturating_sub(look.read_to).max(0) } else { 0 };
        let unread_at_most = unread.unsigned_abs();
        let (state, reason) = State::of(&look, source.health.fault(), look.rows_waiting + unread_at_most);
        let age = (look.in_hand_at_ms > 0).then(|| now_ms.saturating_sub(look.in_hand_at_ms).max(0));
        Self {
            conversation: look.conversation.to_string(),
            database: source.database.display().to_string(),
            session: look.session.map(|session| session.to_string()),
            state,
            reason: reason.map(|reason| reason.name().to_owned()),
            last_row: (look.last_row > 0)
                .then_some(LastRow { id: look.last_row, at_ms: look.last_row_at_ms }),
            rows: Rows { read: look.rows_read, waiting: look.rows_waiting, unread_at_most, age_ms: age },
            items: Items {
                delivered: mirror.delivered.get(),
                found: mirror.found.get(),
                dead_letters: mirror.dead_letters.get(),
            },
            failed_attempts: mirror.failed_attempts.get(),
            read_backs: mirror.read_backs.get(),
            secrets_masked: mirror.masked.load(Ordering::Relaxed),
            read_to_acknowledged: Quantiles::of(&mirror.latency),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::hooks::Teller;
    use crate::ids::{ConversationId, HermesSessionId, MessageId};

    /// A pipeline with one mirror, which has delivered one of two rows.
    pub fn asked() -> (Asked, Arc<MirrorStats>) {
        let stats = Stats::new("http://h".to_owned(), Teller::default());
        let source = stats.add_source(PathBuf::from("/h/state.db"));
        let mirror = stats.add(ConversationId::new("conv_\"1"), &source);
        mirror.follows(Some(HermesSessionId::new("s\u{1b}[2J")));
        for row in [3, 4] {
            mirror.row_read(MessageId::new(row), 1.5);
            mirror.read_to(MessageId::new(row));
        }
        mirror.newest(MessageId::new(4));
        mirror.item_delivered(Duration::from_micros(700));
        mirror.row_passed();
        (Asked::new(Arc::new(stats), None), mirror)
    }

    fn state(asked: &Asked) -> (State, Option<String>, bool) {
        let snapshot = asked.snapshot();
        (snapshot.mirrors[0].state, snapshot.mirrors[0].reason.clone(), snapshot.well)
    }

    #[test]
    fn a_mirror_is_in_the_state_that_matters_most() {
        let (asked, mirror) = asked();
        assert_eq!(state(&asked), (State::CatchingUp, None, true));
        mirror.row_passed();
        assert_eq!(state(&asked), (State::Live, None, true));
        mirror.newest(MessageId::new(9));
        assert_eq!(state(&asked), (State::CatchingUp, None, true));
        mirror.source.health.set_fault(Some(Degraded::Locked));
        assert_eq!(state(&asked), (State::Degraded, Some("locked".to_owned()), false));
        mirror.hold(Some(Degraded::LoggedOut));
        assert_eq!(state(&asked), (State::Held, Some("log in".to_owned()), false));
        mirror.hold(Some(Degraded::Parked));
        assert_eq!(state(&asked), (State::Parked, None, false));
        mirror.source.health.set_fault(None);
        mirror.hold(None);
        mirror.leave_unwritten(true);
        assert_eq!(state(&asked), (State::Degraded, Some("unwritten".to_owned()), false));
        mirror.lane_ended();
        mirror.follows(None);
        assert_eq!(state(&asked), (State::Discovering, None, true));
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let snapshot = asked().0.snapshot();
        assert_eq!(serde_json::from_str::<Snapshot>(&snapshot.json()).unwrap(), snapshot);
    }

    #[test]
    fn the_names_of_the_states_are_those_of_the_json() {
        for (state, name) in State::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), name);
        }
    }

    #[test]
    fn a_part_of_all_times_is_within_the_range_in_which_it_ends() {
        let latency = Latency::default();
        assert_eq!(Quantiles::of(&latency).within_us(50), None);
        for us in [100, 800, 900, 90_000_000] {
            latency.note(Duration::from_micros(us));
        }
        let quantiles = Quantiles::of(&latency);
        assert_eq!((quantiles.within_us(25), quantiles.within_us(50)), (Some(250), Some(1_000)));
        assert_eq!(quantiles.within_us(99), None, "the last range has no end");
    }
}
