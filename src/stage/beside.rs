//! Watching what Hermes writes down beside the messages: a session's name, its end, a compaction under way.
//!
//! No row announces these, so they are asked for. Which compactions run costs one query a wake, however many
//! sessions are mirrored. Names and ends are asked for, in one query, of the sessions that have new rows, and of all
//! when the database has changed and none has, or on the [occasions](super::pump::Occasions) on which everything is
//! asked. Nothing waits for the answers, and a question that fails is asked again at the next wake.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use super::feed::Feed;
use crate::event::{Beside, Row, Standing};
use crate::hermes::{CompressionLock, Label, Open, SourceError};
use crate::ids::HermesSessionId;

/// What one look found.
#[derive(Debug, Default)]
pub struct Seen {
    /// The locks that count now; `None` where they could not be read.
    locks: Option<Vec<CompressionLock>>,
    /// Of the sessions that were asked after; `None` of those that are not there.
    labels: BTreeMap<HermesSessionId, Option<Label>>,
}

impl Seen {
    /// Whether a session was ended, or is no longer there: its terminal may go on elsewhere.
    #[must_use]
    pub fn is_over(&self, session: &HermesSessionId) -> bool {
        self.labels.get(session).is_some_and(|label| label.as_ref().is_none_or(|label| label.is_over))
    }

    /// The same question again, of all: a mirror has gone on in another session.
    #[must_use]
    pub fn anew(self, open: &Open, feeds: &[Feed]) -> Self {
        look(open, feeds, self.locks, true)
    }

    fn label(&self, session: &HermesSessionId) -> Option<&Label> {
        self.labels.get(session)?.as_ref()
    }
}

/// The compactions that are under way; `None` where that could not be read.
#[must_use]
pub fn locks(open: &Open) -> Option<Vec<CompressionLock>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let mut locks = readable(open.compression_locks())?;
    locks.retain(|lock| lock.expires_at >= now);
    Some(locks)
}

/// Looks at names and ends: those of every session if `everyone`, else of those of which there is news.
#[must_use]
pub fn look(open: &Open, feeds: &[Feed], locks: Option<Vec<CompressionLock>>, everyone: bool) -> Seen {
    let asked: Vec<_> = feeds.iter().filter_map(|feed| feed.watched(everyone)).cloned().collect();
    let Some(found) = readable(open.labels(&asked)) else { return Seen { locks, ..Seen::default() } };
    let mut labels: BTreeMap<_, _> = asked.into_iter().map(|session| (session, None)).collect();
    labels.extend(found.into_iter().map(|label| (label.session.clone(), Some(label))));
    Seen { locks, labels }
}

fn readable<T>(answer: Result<T, SourceError>) -> Option<T> {
    answer
        .inspect_err(|error| {
            tracing::debug!("what stands beside the messages could not be read: {error}");
        })
        .ok()
}

/// What is known of one session.
#[derive(Debug, Default)]
pub struct Watch {
    compacting: Option<CompressionLock>,
    title: Option<String>,
    ended: bool,
    /// The time of the newest row, in s since the epoch.
    newest: f64,
}

impl Watch {
    /// A row of the session was read.
    pub fn note(&mut self, row: &Row) {
        if row.standing == Standing::New {
            self.newest = self.newest.max(row.timestamp);
        }
    }

    /// The session goes on in a child. A lock that is held is still the parent's.
    pub fn follow(&mut self) {
        self.ended = false;
    }

    /// Of a compaction that has begun. Told before the rows of the look: its summary may be among them.
    #[must_use]
    pub fn beginning(
        &self,
        session: &HermesSessionId,
        locks: Option<&[CompressionLock]>,
    ) -> Option<CompressionLock> {
        let lock = locks?.iter().find(|lock| lock.session == *session)?;
        self.compacting.is_none().then(|| lock.clone())
    }

    /// A compaction was told of.
    pub fn begun(&mut self, lock: CompressionLock) {
        self.compacting = Some(lock);
    }

    /// What is to be told behind the rows of the look: one thing at a time, until [`Watch::told`] has heard all.
    #[must_use]
    pub fn news(&self, session: &HermesSessionId, seen: &Seen) -> Option<Beside> {
        if let (Some(mine), Some(locks)) = (&self.compacting, &seen.locks) {
            let same = |lock: &&CompressionLock| {
                lock.session == mine.session && lock.acquired_at.total_cmp(&mine.acquired_at).is_eq()
            };
            if !locks.iter().any(|lock| same(&lock)) {
                return Some(Beside::CompactionOver);
            }
        }
        let label = seen.label(session)?;
        match &label.title {
            Some(title) if self.title.as_ref() != Some(title) => Some(Beside::Title(title.clone())),
            // Of two processes on one session the first to leave ends it; the other one writes on.
            _ => (label.ended_at.is_some_and(|at| at >= self.newest) && !self.ended).then_some(Beside::Ended),
        }
    }

    /// These news were told.
    pub fn told(&mut self, news: &Beside) {
        match news {
            Beside::Title(title) => self.title = Some(title.clone()),
            Beside::CompactionOver => self.compacting = None,
            Beside::Ended => self.ended = true,
            Beside::Compacting | Beside::Undone(_) => {}
        }
    }

    /// A session that was ended and is resumed may end again.
    pub fn see(&mut self, session: &HermesSessionId, seen: &Seen) {
        if seen.label(session).is_some_and(|label| label.ended_at.is_none()) {
            self.ended = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> HermesSessionId {
        HermesSessionId::new(name)
    }

    fn lock(session: &str, acquired_at: f64) -> CompressionLock {
        CompressionLock { session: id(session), acquired_at, expires_at: acquired_at + 300.0 }
    }

    fn locked(locks: &[CompressionLock]) -> Seen {
        Seen { locks: Some(locks.to_vec()), labels: BTreeMap::new() }
    }

    fn labelled(title: Option<&str>, ended: bool) -> Seen {
        let ended_at = ended.then_some(10.0);
        let label = Label { session: id("s"), title: title.map(str::to_owned), ended_at, is_over: ended };
        Seen { locks: None, labels: BTreeMap::from([(id("s"), Some(label))]) }
    }

    /// All news of a look, each told.
    fn hear(watch: &mut Watch, seen: &Seen) -> Vec<Beside> {
        watch.see(&id("s"), seen);
        let next = || {
            let news = watch.news(&id("s"), seen)?;
            watch.told(&news);
            Some(news)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_compaction_begins_with_its_lock_and_is_over_without_it() {
        let mut watch = Watch::default();
        assert_eq!(watch.beginning(&id("s"), Some(&[lock("other", 1.0)])), None);
        let held = locked(&[lock("s", 1.0)]);
        watch.begun(watch.beginning(&id("s"), held.locks.as_deref()).expect("begun"));
        assert_eq!(watch.beginning(&id("s"), held.locks.as_deref()), None);
        assert_eq!(hear(&mut watch, &held), []);
        // Locks that could not be read are not locks that are gone.
        assert_eq!(hear(&mut watch, &Seen::default()), []);
        assert_eq!(hear(&mut watch, &locked(&[])), [Beside::CompactionOver]);
        assert_eq!(hear(&mut watch, &locked(&[])), []);
    }

    #[test]
    fn a_lock_that_was_taken_anew_is_another_compaction() {
        let mut watch = Watch::default();
        watch.begun(lock("s", 1.0));
        let again = locked(&[lock("s", 2.0)]);
        assert_eq!(hear(&mut watch, &again), [Beside::CompactionOver]);
        assert!(watch.beginning(&id("s"), again.locks.as_deref()).is_some());
    }

    #[test]
    fn a_lock_that_is_renewed_is_the_same_compaction() {
        let mut watch = Watch::default();
        watch.begun(lock("s", 1.0));
        let renewed = CompressionLock { expires_at: 900.0, ..lock("s", 1.0) };
        assert_eq!(hear(&mut watch, &locked(&[renewed])), []);
    }

    #[test]
    fn a_fork_is_under_way_until_its_parents_lock_is_gone() {
        let mut watch = Watch::default();
        watch.begun(lock("parent", 1.0));
        watch.follow();
        assert_eq!(hear(&mut watch, &locked(&[lock("parent", 1.0)])), []);
        assert_eq!(hear(&mut watch, &locked(&[])), [Beside::CompactionOver]);
    }

    #[test]
    fn a_title_and_an_end_are_told_once_for_each_change() {
        let mut watch = Watch::default();
        let title = |text: &str| Beside::Title(text.to_owned());
        assert_eq!(hear(&mut watch, &labelled(None, false)), []);
        assert_eq!(hear(&mut watch, &labelled(Some("A"), false)), [title("A")]);
        assert_eq!(hear(&mut watch, &labelled(Some("A"), false)), []);
        assert_eq!(hear(&mut watch, &labelled(Some("B"), true)), [title("B"), Beside::Ended]);
        assert_eq!(hear(&mut watch, &labelled(None, true)), []);
        assert_eq!(hear(&mut watch, &labelled(None, false)), []);
        assert_eq!(hear(&mut watch, &labelled(None, true)), [Beside::Ended]);
    }

    #[test]
    fn an_end_before_the_newest_row_is_none() {
        let mut watch = Watch { newest: 11.0, ..Watch::default() };
        assert_eq!(hear(&mut watch, &labelled(None, true)), []);
        watch.newest = 9.0;
        assert_eq!(hear(&mut watch, &labelled(None, true)), [Beside::Ended]);
    }
}
