//! Which rows repeat what was mirrored before (design rule 8), and which session continues another.
//!
//! A compaction re-inserts old rows under new ids: in the same session, its originals archived, or in a
//! child session, its originals left behind in the parent. A re-inserted row is told from a new one by
//! evidence that a new row cannot have: its content equals a mirrored row's, and its timestamp equals the
//! original's, or it stands in a chain of rows one microsecond apart, which one transaction of Hermes wrote
//! (seen in 0.19). Versions up to 0.18 wrote a child's rows in transactions of their own, one at once behind the
//! other: there a row must also stand in its original's place. Each original (a *ghost*) excuses one row, in
//! order, and only inside that chain: the same words typed again later are a new message.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::event::{Role, Row, Standing, Trace};
use crate::ids::MessageId;

mod joined;
mod key;
mod originals;
mod wave;

pub use key::{is_summary, trace};
pub use wave::Wave;

use key::key;
use originals::Originals;

/// Rows of one rewrite without a timestamp of their own are this far apart, in s.
const STEP: f64 = 1e-6;
/// Of so many rows with one and the same time the keys are kept; a copy of an earlier one of them passes for new.
const STAMPED_ALIKE: usize = 64;
/// After so many rows in vain, no more is asked for the originals of a row merely because its time runs back, until time
/// goes on: an import may be in no order, and to ask for each of its rows would read the session as often.
const IN_VAIN: u32 = 16;
/// Two steps of an f64 at today's epoch, about 0.24 us each.
const ROUNDING: f64 = 0.5e-6;
/// Rows that a program writes one behind the other are nearer than this, in s, and those that a person types are not.
pub const AT_ONCE: f64 = 0.5;

/// An original that may come back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ghost {
    key: u64,
    /// The summary that the row holds, if any.
    summary: Option<u64>,
    timestamp: f64,
    /// Still live in the session that is followed, so only an equal timestamp makes a row its copy.
    live: bool,
    /// It was live until the rewrite.
    archived: bool,
}

impl Ghost {
    /// A mirrored row as a ghost. `live`: it still stands in the transcript that is followed.
    #[must_use]
    pub fn of(row: &Row, live: bool) -> Self {
        let (key, summary) = key(row);
        let archived = !live && row.standing != Standing::TakenBack;
        Self { key, summary, timestamp: row.timestamp, live, archived }
    }

    /// Whether `row` is a copy that was written at once behind one of the time `last`, or with its original's time.
    #[must_use]
    pub fn is_of(&self, row: &Row, last: Option<f64>) -> bool {
        let at_once = last.is_none_or(|last| row.timestamp - last < AT_ONCE);
        self.key == key(row).0 && (at_once || same_time(self.timestamp, row.timestamp))
    }

    /// Whether `row` says what this one said, and has another time.
    #[must_use]
    pub fn is_said_again(&self, row: &Row) -> bool {
        self.key == key(row).0 && !same_time(self.timestamp, row.timestamp)
    }

    /// A mirrored row that is no longer in the database.
    #[must_use]
    pub fn gone(trace: Trace) -> Self {
        Self { key: trace.key, summary: None, timestamp: trace.timestamp, live: false, archived: false }
    }
}

/// The originals that a rewrite may bring back.
#[derive(Clone, Debug, Default)]
pub struct Ghosts {
    /// In the order in which they were live.
    pub rows: Vec<Ghost>,
    /// What the rewrite is.
    pub kind: Kind,
}

/// What re-inserts rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A compaction within the session, or the same rows appended again.
    #[default]
    Within,
    /// A compaction that goes on in this session, with its first rows.
    Handover,
    /// A message was edited and sent again: what stood before it is kept, the rest is gone. No summary is new.
    Edit {
        /// The first row stands alone and is the person's, and what was sent again follows it at once.
        kept_one: bool,
    },
}

/// How near a row stands to the one before it in a rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nearness {
    /// By its time a row of its own.
    Far,
    /// Written at once behind it.
    AtOnce,
    /// Of the same transaction.
    Chained,
}

/// What [`Rewrites::judge`] makes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A message not shown yet.
    New,
    /// A copy of one that was.
    Repeated,
    /// The summary of a compaction.
    Summary,
    /// A summary in the words of an earlier one: that one, kept, if the rewrite holds another summary; else a
    /// compaction's that found nothing new to say.
    Recurring,
}

/// Follows one session's rows and tells the re-inserted ones.
#[derive(Clone, Debug, Default)]
pub struct Rewrites {
    last: Option<Stamp>,
    /// The keys of the newest rows that have the last one's time.
    at_once: VecDeque<u64>,
    open: Option<Rewrite>,
    generation: MessageId,
    /// The latest time of any row.
    latest: f64,
    /// How often a time that ran back was no sign of a copy since then.
    in_vain: u32,
}

#[derive(Clone, Copy, Debug)]
struct Stamp {
    id: MessageId,
    timestamp: f64,
}

/// One transaction's re-inserted rows, while they are passed.
#[derive(Clone, Debug)]
struct Rewrite {
    first: MessageId,
    kind: Kind,
    ghosts: Arc<Originals>,
    next: usize,
    /// The original of the row passed last is live.
    live: bool,
    /// The places in `ghosts` behind the kept tail, as far as it is passed: several while its words are ambiguous.
    tail: Option<Vec<usize>>,
    /// The compaction's own summary was passed.
    summed: bool,
    /// Rows of it were written in one transaction, so all were: what stands outside the chain is none of it.
    in_one: bool,
    /// The last row stamped "now", and the rows since.
    chain: Option<(f64, u32)>,
}

impl Rewrites {
    /// The row judged last.
    #[must_use]
    pub fn last(&self) -> Option<MessageId> {
        self.last.map(|last| last.id)
    }

    /// Judges the next row of the session.
    ///
    /// `next` is the timestamp of the row behind it, where there is one. `ghosts` is asked at most once, when a
    /// rewrite may begin here: for the mirrored rows from an id on (older ones were no longer live), given the
    /// first row of the rewrite. `vanished`: the row judged last is no longer in the database.
    pub fn judge<E>(
        &mut self,
        row: &Row,
        next: Option<f64>,
        vanished: bool,
        ghosts: impl FnOnce(MessageId, MessageId) -> Result<Ghosts, E>,
    ) -> Result<Verdict, E> {
        let is_summary = is_summary(row);
        let chained = is_chained(row, next);
        let within = self.open.as_mut().and_then(|open| open.accept(row, is_summary, chained));
        let verdict = match within {
            Some(verdict) => verdict,
            None => self.begin(row, is_summary, chained, vanished, ghosts)?,
        };
        self.note(row);
        Ok(verdict)
    }

    /// Whether `row`, which follows the one judged last, belongs to the same rewrite. `next` as for [`Rewrites::judge`].
    pub fn belongs(&mut self, row: &Row, next: Option<f64>) -> bool {
        let chained = is_chained(row, next);
        self.open.as_mut().is_some_and(|open| open.accept(row, is_summary(row), chained).is_some())
    }

    /// The first row of the rewrite that is being passed.
    #[must_use]
    pub fn first(&self) -> Option<MessageId> {
        self.open.as_ref().map(|open| open.first)
    }

    /// Whether the row judged last repeats one that is live beside it.
    #[must_use]
    pub fn repeats_live(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.live)
    }

    fn begin<E>(
        &mut self,
        row: &Row,
        is_summary: bool,
        chained: bool,
        vanished: bool,
        ghosts: impl FnOnce(MessageId, MessageId) -> Result<Ghosts, E>,
    ) -> Result<Verdict, E> {
        // Head rows that kept their times are not chained to the summary behind them: one rewrite all the same.
        let earlier = self.open.take();
        let head = earlier.as_ref().filter(|open| is_summary && !open.summed).map(|open| open.first);
        if let (Some(ended), None) = (earlier, head) {
            self.generation = ended.first;
        }
        let is_certain = is_summary || chained || vanished;
        if !is_certain && (self.in_vain >= IN_VAIN || !self.runs_back(row)) {
            return Ok(Verdict::New);
        }
        let first = head.unwrap_or(row.id);
        let Ghosts { rows, kind } = ghosts(self.generation, first)?;
        let nearness = match kind {
            _ if chained => Nearness::Chained,
            Kind::Handover => Nearness::AtOnce,
            _ if is_summary => Nearness::Chained,
            // A lone row that an edit kept. What the person typed may be what was sent again.
            Kind::Edit { kept_one } if kept_one || row.role != Role::User => Nearness::Chained,
            Kind::Edit { .. } | Kind::Within => Nearness::Far,
        };
        let mut rewrite = Rewrite {
            first,
            kind,
            ghosts: Arc::new(Originals::new(rows)),
            next: 0,
            live: false,
            tail: None,
            summed: false,
            in_one: chained,
            chain: None,
        };
        let verdict = rewrite.excuse(row, is_summary, nearness);
        if verdict.is_some() {
            self.open = Some(rewrite);
            self.in_vain = 0;
        } else if !is_certain {
            self.in_vain += 1;
        }
        Ok(verdict.unwrap_or(Verdict::New))
    }

    /// A clock that runs back: a row that kept the time of its original. One that stands still says as much only of a
    /// row that was just seen: an import may stamp all of its rows alike, and asking for the ghosts of each would
    /// read the whole session at each.
    fn runs_back(&self, row: &Row) -> bool {
        row.timestamp > 0.0
            && self.last.is_none_or(|last| match row.timestamp.total_cmp(&last.timestamp) {
                Ordering::Less => last.id < row.id,
                Ordering::Equal => last.id < row.id && self.at_once.contains(&key_of(row)),
                Ordering::Greater => false,
            })
    }

    fn note(&mut self, row: &Row) {
        if self.last.is_some_and(|last| last.timestamp.total_cmp(&row.timestamp).is_ne()) {
            self.at_once.clear();
        }
        if self.at_once.len() >= STAMPED_ALIKE {
            self.at_once.pop_front();
        }
        self.at_once.push_back(key_of(row));
        if row.timestamp > self.latest {
            (self.latest, self.in_vain) = (row.timestamp, 0);
        }
        self.last = Some(Stamp::of(row));
    }
}

/// The key of a row, taken from its trace where it has one already.
fn key_of(row: &Row) -> u64 {
    row.trace.map_or_else(|| key(row).0, |trace| trace.key)
}

impl Stamp {
    fn of(row: &Row) -> Self {
        Self { id: row.id, timestamp: row.timestamp }
    }
}

impl Rewrite {
    /// The verdict on a row if it belongs to this rewrite.
    fn accept(&mut self, row: &Row, is_summary: bool, chained: bool) -> Option<Verdict> {
        let nearness = match self.nearness(row, chained) {
            Nearness::Far if self.completes(row) => Nearness::Chained,
            nearness => nearness,
        };
        self.in_one |= nearness == Nearness::Chained;
        let another = match nearness {
            Nearness::Chained => false,
            // A compaction has one summary of its own: another new one is the next compaction's.
            Nearness::AtOnce => self.summed && !self.holds(row),
            Nearness::Far => !self.keeps(row),
        };
        if is_summary && another {
            return None;
        }
        self.excuse(row, is_summary, nearness)
    }

    /// `chained`: the row behind it stands in one chain with it.
    fn nearness(&self, row: &Row, chained: bool) -> Nearness {
        let at_once = |base: f64| (-ROUNDING..AT_ONCE).contains(&(row.timestamp - base));
        match self.chain {
            Some((base, rows)) if follows(base, row.timestamp, rows + 1) => Nearness::Chained,
            Some((base, _)) if self.kind == Kind::Handover && !self.in_one && at_once(base) => {
                Nearness::AtOnce
            }
            None if self.kind == Kind::Handover => Nearness::AtOnce,
            // What Hermes had read from the database kept its times, what it wrote since has none to keep.
            None if chained => Nearness::Chained,
            _ => Nearness::Far,
        }
    }

    /// Whether the row is the next of the kept tail, which reaches to the end of what was live: a lone row without a
    /// time to keep behind rows that kept theirs.
    fn completes(&self, row: &Row) -> bool {
        let within = self.chain.is_none() && self.summed && self.tail.as_deref() == Some(&[self.next]);
        let is_next = |ghost: &Ghost| ghost.archived && ghost.key == key(row).0;
        within && self.ghosts.get(self.next).is_some_and(is_next)
    }

    /// Whether the row is one that was there before, with its time and the summary it held; before the rewrite's own
    /// summary, also one that took that up.
    fn keeps(&self, row: &Row) -> bool {
        let (key, summary) = key(row);
        let same = |ghost: Ghost| ghost.summary == summary || !(self.summed || ghost.live);
        self.ghosts
            .of(key, self.next)
            .any(|(_, ghost)| same(ghost) && same_time(ghost.timestamp, row.timestamp))
    }

    /// Whether the row is one that was there before, with the summary it held.
    fn holds(&self, row: &Row) -> bool {
        let (key, summary) = key(row);
        self.ghosts.of(key, self.next).any(|(_, ghost)| ghost.summary == summary)
    }

    fn excuse(&mut self, row: &Row, is_summary: bool, nearness: Nearness) -> Option<Verdict> {
        let (key, summary) = key(row);
        let found = self.find(row, (key, summary), nearness);
        self.live = found.is_some_and(|(_, ghost)| ghost.live);
        if let Some((at, ghost)) = found {
            let kept_its_time = same_time(ghost.timestamp, row.timestamp);
            let same_summary = ghost.summary == summary;
            self.next = at + 1;
            self.step(row, !kept_its_time);
            // A summary merged into a kept row repeats that row, and is a summary of its own. A row that held
            // the same summary before may be no more than a row that was kept again.
            let verdict = match (is_summary, same_summary) {
                (false, _) => Verdict::Repeated,
                (true, _) if matches!(self.kind, Kind::Edit { .. }) => Verdict::Repeated,
                (true, false) => Verdict::Summary,
                // Rows written one by one can't be looked ahead in for another summary.
                (true, true) if kept_its_time || self.summed || nearness == Nearness::AtOnce => {
                    Verdict::Repeated
                }
                (true, true) => Verdict::Recurring,
            };
            self.summed |= verdict == Verdict::Summary;
            if self.summed {
                self.tail = Some(if kept_its_time { vec![at + 1] } else { self.aligned(key) });
            }
            return Some(verdict);
        }
        if nearness == Nearness::Chained
            && let Some(last) = joined::last_of(&self.ghosts, row, self.next)
        {
            self.next = last + 1;
            self.step(row, true);
            return Some(Verdict::Repeated);
        }
        if is_summary || nearness == Nearness::Chained {
            self.step(row, true);
            self.summed |= is_summary;
            return Some(if is_summary { Verdict::Summary } else { Verdict::New });
        }
        None
    }

    /// The original of a row: rather the one that held the same summary, if any did.
    fn find(&self, row: &Row, key: (u64, Option<u64>), nearness: Nearness) -> Option<(usize, Ghost)> {
        let in_place = |at: usize| match &self.tail {
            // Nobody says yet where the kept tail begins.
            None if self.summed => true,
            None => at == self.next,
            Some(tail) => tail.contains(&at),
        };
        let mut originals = self.ghosts.of(key.0, self.next).filter(|(at, ghost)| {
            let near = match nearness {
                Nearness::Chained => true,
                Nearness::AtOnce => in_place(*at),
                Nearness::Far => false,
            };
            same_time(ghost.timestamp, row.timestamp) || (near && !ghost.live)
        });
        let first = originals.next();
        if first.is_none_or(|(_, ghost)| ghost.summary == key.1) {
            return first;
        }
        originals.find(|(_, ghost)| ghost.summary == key.1).or(first)
    }

    /// Where the kept tail can go on behind a row with this key.
    fn aligned(&self, key: u64) -> Vec<usize> {
        match &self.tail {
            None => self.ghosts.of(key, 0).map(|(at, _)| at + 1).collect(),
            Some(tail) => tail.iter().filter(|at| self.ghosts.is_at(**at, key)).map(|at| at + 1).collect(),
        }
    }

    fn step(&mut self, row: &Row, now: bool) {
        self.chain = match self.chain {
            _ if now => Some((row.timestamp, 0)),
            Some((base, rows)) => Some((base, rows + 1)),
            None => None,
        };
    }
}

/// Whether the row behind `row`, stamped `next`, was written by the same transaction.
fn is_chained(row: &Row, next: Option<f64>) -> bool {
    next.is_some_and(|next| follows(row.timestamp, next, 1))
}

/// Whether `later` was stamped by the same transaction as `base`, `rows` rows further on.
fn follows(base: f64, later: f64, rows: u32) -> bool {
    let apart = later - base;
    apart > 0.0 && apart <= f64::from(rows) * STEP + ROUNDING
}

fn same_time(a: f64, b: f64) -> bool {
    (a - b).abs() < ROUNDING
}

#[cfg(test)]
mod tests;
