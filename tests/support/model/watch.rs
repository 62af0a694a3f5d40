//! The mirror beside a play: when it runs, and whether it shows what it should.

use std::time::Duration;

use super::reference::by_turn;
use crate::support::fault::Random;
use crate::support::mirror::{Mirror, World};
use crate::support::shown::shown;

/// How long a line may take. Only a failing test waits that long.
const PATIENCE: Duration = Duration::from_secs(8);

/// When the mirror runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// From the start to the end.
    Live,
    /// From the end on.
    Late,
    /// Now and then.
    Restarted,
}

/// A mirror and its schedule.
pub struct Watch {
    pub world: World,
    mirror: Option<Mirror>,
    schedule: Schedule,
    moments: Random,
    story: Vec<String>,
    /// Whether ids may be given anew.
    reused: bool,
}

impl Watch {
    /// A mirror that starts with the play, unless it is to be late. `title`: what names the play in a failure.
    pub fn new(title: String, schedule: Schedule, seed: u64) -> Self {
        let moments = Random::new(seed.wrapping_add(1_000_000));
        let mut watch =
            Self { world: World::new(), mirror: None, schedule, moments, story: vec![title], reused: false };
        if schedule == Schedule::Live {
            watch.start();
        }
        watch
    }

    /// From now on ids are given that others had: an older copy of the database was put in place.
    pub fn expect_reuse(&mut self) {
        self.reused = true;
    }

    pub fn is_on(&self) -> bool {
        self.mirror.is_some()
    }

    /// Whether the mirror is to run now.
    pub fn wish(&mut self) -> bool {
        match self.schedule {
            Schedule::Live => true,
            Schedule::Late => false,
            Schedule::Restarted => self.is_on() != self.moments.happens(25),
        }
    }

    pub fn start(&mut self) {
        if self.mirror.is_none() {
            let mirrors =
                format!("[[mirror]]\nconversation = '{}'\nsession = 's'\n", self.world.conversation);
            self.mirror = Some(self.world.run(&[], &mirrors));
        }
    }

    pub fn stop(&mut self) {
        if let Some(mirror) = self.mirror.take() {
            mirror.stop();
        }
    }

    pub fn note(&mut self, what: &str) {
        self.story.push(what.to_owned());
    }

    /// What was played so far.
    pub fn story(&self) -> String {
        self.story.join("\n  ")
    }

    /// Waits until so much is shown, and holds it against `transcript`.
    pub fn expect(&self, transcript: &[String]) {
        let sink = &self.world.sink;
        let enough = |state: &crate::support::sink::State| {
            state.items(&self.world.conversation).len() >= transcript.len()
        };
        let _ = sink.wait_until(enough, PATIENCE);
        self.compare(transcript);
    }

    fn compare(&self, transcript: &[String]) {
        let found = self.stored();
        if found == transcript {
            return;
        }
        let same = std::iter::zip(&found, transcript).take_while(|(a, b)| a == b).count();
        let log = self.mirror.as_ref().map(Mirror::log).unwrap_or_default();
        panic!(
            "{}\nnumber {same} differs\nexpected: {:#?}\nfound: {:#?}\nlog:\n{log}",
            self.story(),
            &transcript[same.saturating_sub(2)..],
            &found[same.saturating_sub(2)..],
        );
    }

    /// The items that the server holds, each with its turn.
    fn stored(&self) -> Vec<String> {
        let live = ["running", "idle", "think"];
        let lines = self.world.shown().into_iter();
        let items = lines.filter(|line| !live.iter().any(|start| line.starts_with(start)));
        let items = items.map(|line| match turn_of(&line) {
            Some((turn, rest)) => (Some(turn), rest.to_owned()),
            None => (None, line),
        });
        by_turn(&items.collect::<Vec<_>>(), self.reused)
    }

    /// Every item stands between the edges of its turn, and one turn runs at a time.
    fn check_edges(&self, lines: &[String]) {
        let mut running = None;
        for (at, line) in lines.iter().enumerate() {
            let story = || format!("{}\nline {at} of {lines:#?}", self.story());
            if let Some(turn) = line.strip_prefix("running ") {
                assert!(running.is_none_or(|open| open == turn), "{}", story());
                running = Some(turn);
            } else if let Some(turn) = line.strip_prefix("idle ") {
                assert_eq!(running.take(), Some(turn), "{}", story());
            } else if let Some((turn, _)) = turn_of(line) {
                // What the person said stands before the edge that says that the turn runs.
                let begins = running.is_none()
                    && lines.get(at + 1).is_some_and(|next| *next == format!("running {turn}"));
                assert!(begins || running.map(str::parse) == Some(Ok(turn)), "{}", story());
            }
        }
        assert_eq!(running, None, "{}", self.story());
    }

    /// Stops the mirror; nothing may have come since. Every turn has begun and ended around its items.
    pub fn finish(mut self) {
        let before = self.stored();
        self.stop();
        assert_eq!(self.stored(), before, "{}", self.story());
        let lines = shown(&self.world.sink.events(&self.world.conversation));
        self.check_edges(&lines);
    }
}

/// The turn's opener of a line that is an item's, and the rest of it.
fn turn_of(line: &str) -> Option<(i64, &str)> {
    let (turn, rest) = line.split_once(' ')?;
    Some((turn.parse().ok()?, rest))
}
