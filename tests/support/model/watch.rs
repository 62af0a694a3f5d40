//! The mirror beside a play: when it runs, and whether it shows what it should.

use std::time::Duration;

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
}

impl Watch {
    /// A mirror that starts with the play, unless it is to be late. `title`: what names the play in a failure.
    pub fn new(title: String, schedule: Schedule, seed: u64) -> Self {
        let moments = Random::new(seed.wrapping_add(1_000_000));
        let mut watch = Self { world: World::new(), mirror: None, schedule, moments, story: vec![title] };
        if schedule == Schedule::Live {
            watch.start();
        }
        watch
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

    /// The items that the server holds, without their turns.
    fn stored(&self) -> Vec<String> {
        let live = ["running", "idle", "think"];
        let lines = self.world.shown().into_iter();
        let items = lines.filter(|line| !live.iter().any(|start| line.starts_with(start)));
        items
            .map(|line| match line.split_once(' ') {
                Some((turn, rest)) if turn.parse::<i64>().is_ok() => rest.to_owned(),
                _ => line,
            })
            .collect()
    }

    /// Stops the mirror; nothing may have come since. No turn may run on, and none may end twice.
    pub fn finish(mut self) {
        let before = self.stored();
        self.stop();
        assert_eq!(self.stored(), before, "{}", self.story());
        let lines = shown(&self.world.sink.events(&self.world.conversation));
        let last = lines.last().map_or("", String::as_str);
        assert!(last.starts_with("idle"), "{}\n{lines:#?}", self.story());
    }
}
