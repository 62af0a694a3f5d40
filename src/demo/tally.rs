//! Who has shown what, how often and how soon.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::hermes::Message;

/// What a thing is that a person sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message of the person.
    User,
    /// A message of the model.
    Agent,
    /// A tool call.
    Call,
    /// A tool's result.
    Output,
    /// The model's reasoning.
    Reasoning,
    /// The boundary of a compaction.
    Boundary,
}

impl Kind {
    /// Whether it is one of the messages that the transcript holds; reasoning and boundaries stand beside them.
    #[must_use]
    pub fn is_message(self) -> bool {
        !matches!(self, Self::Reasoning | Self::Boundary)
    }
}

/// One thing that a person sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it is.
    pub kind: Kind,
    /// What it says.
    pub text: String,
}

/// What a message is to be seen as.
pub fn of(message: &Message) -> Vec<Seen> {
    let seen = |kind, text: &str| Seen { kind, text: text.to_owned() };
    let mut all = Vec::new();
    all.extend(message.reasoning.as_deref().map(|text| seen(Kind::Reasoning, text)));
    let kind = match message.role {
        "user" => Kind::User,
        "tool" => Kind::Output,
        _ => Kind::Agent,
    };
    if !message.content.is_empty() {
        all.push(seen(kind, &message.content));
    }
    all.extend(
        message.calls.iter().map(|call| seen(Kind::Call, &format!("{} {}", call.name, call.arguments))),
    );
    all
}

/// What became of a row for those who poll.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RowKind {
    /// So many messages, committed then.
    New(usize, Instant),
    /// So many messages that were there before.
    Again(usize),
    /// A summary, which is no message.
    Summary,
}

struct Expected {
    seen: Seen,
    committed: Instant,
    latency: Option<Duration>,
}

/// The account of one run.
#[derive(Default)]
pub struct Tally {
    expected: Vec<Expected>,
    /// Arrived, and not expected, or not yet.
    pending: Vec<(Seen, Instant)>,
    rows: BTreeMap<i64, RowKind>,
    polled: BTreeMap<i64, Vec<Instant>>,
}

/// How one of the two has done.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Score {
    /// Messages that it showed.
    pub shown: usize,
    /// Messages that it did not.
    pub missing: usize,
    /// What it showed again.
    pub duplicates: usize,
    /// Half of them were shown within this time, in ms.
    pub p50_ms: f64,
    /// All but one in a hundred were.
    pub p99_ms: f64,
}

/// How both have done.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Summary {
    /// Messages that were written.
    pub messages: usize,
    /// Compaction boundaries that the mirror showed.
    pub boundaries: usize,
    /// The mirror.
    pub mirror: Score,
    /// The polling baseline.
    pub polling: Score,
    /// Summaries that the baseline showed as an answer.
    pub polling_summaries: usize,
    /// Whether the mirror showed all that there was to show, reasoning and boundaries included.
    pub complete: bool,
    /// Whether it was stopped before its end.
    pub stopped: bool,
}

impl Summary {
    /// Whether everything was shown, and once.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.complete && self.mirror.duplicates == 0
    }
}

impl Tally {
    /// A new message was stored. Returns what of it has arrived already, with its latency.
    pub fn wrote(&mut self, row: i64, at: Instant, message: &Message) -> Vec<(Seen, Duration)> {
        let seen = of(message);
        let messages = seen.iter().filter(|seen| seen.kind.is_message()).count();
        self.rows.insert(row, RowKind::New(messages, at));
        self.expect(at, seen)
    }

    /// A compaction has stored its summary, and old messages again.
    pub fn rewrote(
        &mut self,
        summary: (i64, &str),
        again: &[(i64, Message)],
        at: Instant,
    ) -> Vec<(Seen, Duration)> {
        for (row, message) in again {
            let messages = of(message).iter().filter(|seen| seen.kind.is_message()).count();
            self.rows.insert(*row, RowKind::Again(messages));
        }
        self.rows.insert(summary.0, RowKind::Summary);
        self.expect(at, vec![Seen { kind: Kind::Boundary, text: summary.1.to_owned() }])
    }

    fn expect(&mut self, at: Instant, seen: Vec<Seen>) -> Vec<(Seen, Duration)> {
        let expected = seen.into_iter().map(|seen| Expected { seen, committed: at, latency: None });
        self.expected.extend(expected);
        std::mem::take(&mut self.pending)
            .into_iter()
            .filter_map(|(seen, at)| self.arrived(seen.clone(), at).map(|latency| (seen, latency)))
            .collect()
    }

    /// The mirror has shown something. Returns how long after its commit, if that is known by now.
    pub fn arrived(&mut self, seen: Seen, at: Instant) -> Option<Duration> {
        let found = self.expected.iter_mut().find(|e| e.latency.is_none() && e.seen == seen);
        let Some(expected) = found else {
            self.pending.push((seen, at));
            return None;
        };
        let latency = at.saturating_duration_since(expected.committed);
        expected.latency = Some(latency);
        Some(latency)
    }

    /// The baseline has read a row.
    pub fn polled(&mut self, row: i64, at: Instant) {
        self.polled.entry(row).or_default().push(at);
    }

    /// Whether the mirror has shown all that was written so far.
    pub fn all_arrived(&self) -> bool {
        self.expected.iter().all(|expected| expected.latency.is_some())
    }

    /// Whether the baseline has read the last row.
    pub fn all_polled(&self) -> bool {
        self.rows.keys().next_back().is_none_or(|last| self.polled.contains_key(last))
    }

    /// The account.
    pub fn summary(&self, stopped: bool) -> Summary {
        let messages = || self.expected.iter().filter(|expected| expected.seen.kind.is_message());
        let written = messages().count();
        let latencies = messages().filter_map(|expected| expected.latency).collect();
        let mirror = Score::of(written, latencies, self.pending.len());
        let (mut latencies, mut again, mut summaries) = (Vec::new(), 0, 0);
        for (row, times) in &self.polled {
            match self.rows.get(row) {
                Some(RowKind::New(count, committed)) => {
                    for at in times {
                        latencies.extend(vec![at.saturating_duration_since(*committed); *count]);
                    }
                }
                Some(RowKind::Again(count)) => again += count,
                Some(RowKind::Summary) => summaries += 1,
                None => {}
            }
        }
        let boundaries = |e: &&Expected| e.seen.kind == Kind::Boundary && e.latency.is_some();
        Summary {
            messages: written,
            boundaries: self.expected.iter().filter(boundaries).count(),
            mirror,
            polling: Score::of(written, latencies, again),
            polling_summaries: summaries,
            complete: self.all_arrived(),
            stopped,
        }
    }
}

impl Score {
    fn of(written: usize, mut latencies: Vec<Duration>, duplicates: usize) -> Self {
        latencies.sort_unstable();
        let rank = |percent: usize| {
            let at = (latencies.len() * percent).div_ceil(100).saturating_sub(1);
            latencies.get(at).map_or(0.0, |latency| latency.as_secs_f64() * 1_000.0)
        };
        Self {
            shown: latencies.len(),
            missing: written.saturating_sub(latencies.len()),
            duplicates,
            p50_ms: rank(50),
            p99_ms: rank(99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Message {
        Message { role: "user", content: text.to_owned(), ..Message::default() }
    }

    fn seen(text: &str) -> Seen {
        Seen { kind: Kind::User, text: text.to_owned() }
    }

    #[test]
    fn what_arrives_before_its_commit_is_known_is_counted_all_the_same() {
        let (mut tally, at) = (Tally::default(), Instant::now());
        assert_eq!(tally.arrived(seen("a"), at), None);
        assert_eq!(tally.wrote(1, at, &message("a")), [(seen("a"), Duration::ZERO)]);
        assert!(tally.all_arrived() && tally.summary(false).is_right());
    }

    #[test]
    fn a_message_shown_twice_and_one_never_shown_are_wrong() {
        let (mut tally, at) = (Tally::default(), Instant::now());
        tally.wrote(1, at, &message("a"));
        tally.wrote(2, at, &message("b"));
        for _ in 0..2 {
            tally.arrived(seen("a"), at);
        }
        let summary = tally.summary(false);
        let mirror = (summary.mirror.shown, summary.mirror.missing, summary.mirror.duplicates);
        assert_eq!(mirror, (1, 1, 1));
        assert!(!summary.is_right() && !tally.all_arrived());
    }

    #[test]
    fn who_polls_shows_again_what_a_compaction_writes_again() {
        let (mut tally, at) = (Tally::default(), Instant::now());
        tally.wrote(1, at, &message("a"));
        tally.rewrote((3, "s"), &[(2, message("a"))], at);
        for (row, ms) in [(1, 300), (2, 500), (3, 500)] {
            tally.polled(row, at + Duration::from_millis(ms));
        }
        let summary = tally.summary(false);
        assert_eq!((summary.polling.shown, summary.polling.duplicates, summary.polling_summaries), (1, 1, 1));
        assert!((summary.polling.p99_ms - 300.0).abs() < 1e-6);
    }
}
