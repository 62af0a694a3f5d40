//! What is said in the demo, and when.

use std::time::Duration;

use serde_json::{Value, json};

use super::hermes::{Call, Message};

/// One thing that happens, some time after the one before.
#[derive(Clone, Debug, PartialEq)]
pub struct Beat {
    /// How long after the one before.
    pub after: Duration,
    /// What happens.
    pub act: Act,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// A message is stored.
    Store(Message),
    /// The session gets its title.
    Name(&'static str),
    /// The person takes back the last turn.
    Undo,
    /// A compaction begins.
    BeginCompaction,
    /// It ends, with this summary.
    Compact(&'static str),
}

/// How fast a person and a model are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As in life, or nearly.
    Lifelike,
    /// A twentieth of that.
    Fast,
}

impl Pace {
    fn of(self, lifelike_ms: u64) -> Duration {
        match self {
            Self::Lifelike => Duration::from_millis(lifelike_ms),
            Self::Fast => Duration::from_millis((lifelike_ms / 20).max(20)),
        }
    }
}

/// The turns, in order; there are four kinds of them, over and over.
pub fn script(turns: u32, pace: Pace) -> Vec<Beat> {
    let mut stage = Stage { beats: Vec::new(), pace, calls: 0 };
    for turn in 0..turns {
        match turn % 4 {
            0 => look_into_it(&mut stage),
            1 => change_of_mind(&mut stage),
            2 => long_work(&mut stage),
            _ => small_talk(&mut stage),
        }
        if turn == 0 {
            stage.beat(400, Act::Name("Why the build got slow"));
        }
    }
    stage.beats
}

struct Stage {
    beats: Vec<Beat>,
    pace: Pace,
    calls: usize,
}

impl Stage {
    fn beat(&mut self, after_ms: u64, act: Act) {
        let after = self.pace.of(after_ms);
        self.beats.push(Beat { after, act });
    }

    fn user(&mut self, after_ms: u64, text: &str) {
        let message = Message { role: "user", content: text.to_owned(), ..Message::default() };
        self.beat(after_ms, Act::Store(message));
    }

    fn answer(&mut self, after_ms: u64, text: &str) {
        let message = Message {
            role: "assistant",
            content: text.to_owned(),
            finish: Some("stop"),
            ..Message::default()
        };
        self.beat(after_ms, Act::Store(message));
    }

    /// The model calls tools in parallel; each result comes some time after the one before.
    fn tools(
        &mut self,
        after_ms: u64,
        thought: &str,
        said: &str,
        tools: &[(&'static str, Value, u64, &str)],
    ) {
        let calls: Vec<Call> = tools
            .iter()
            .map(|(name, arguments, ..)| {
                self.calls += 1;
                Call { id: format!("call_{}", self.calls), name, arguments: arguments.clone() }
            })
            .collect();
        let message = Message {
            role: "assistant",
            content: said.to_owned(),
            reasoning: Some(thought.to_owned()),
            calls: calls.clone(),
            finish: Some("tool_calls"),
            ..Message::default()
        };
        self.beat(after_ms, Act::Store(message));
        for (call, (name, _, result_ms, output)) in std::iter::zip(calls, tools) {
            let message = Message {
                role: "tool",
                content: (*output).to_owned(),
                result_of: Some((call.id, name)),
                ..Message::default()
            };
            self.beat(*result_ms, Act::Store(message));
        }
    }
}

fn look_into_it(stage: &mut Stage) {
    stage.user(1_200, "The build takes twice as long since last week. Can you find out why?");
    let todos = json!({"todos": [
        {"id": "1", "content": "Compare the timings", "status": "in_progress"},
        {"id": "2", "content": "Find what changed", "status": "pending"},
        {"id": "3", "content": "Measure again", "status": "pending"}]});
    stage.tools(
        900,
        "Two things can make a build slow: more code, or the same code built twice. The timings tell which.",
        "I compare the timings with the manifest.",
        &[
            ("todo", todos.clone(), 250, &todos.to_string()),
            ("terminal", json!({"command": "cargo build --timings"}), 1_500, "Finished in 96.4s\n  31.2s  parser (lib)\n  30.8s  parser (lib, feature \"trace\")\n  12.1s  store (lib)"),
            ("read_file", json!({"path": "Cargo.toml"}), 500, "[dependencies]\nparser = { path = \"parser\" }\nstore = { path = \"store\", features = [\"trace\"] }"),
        ],
    );
    stage.answer(
        1_100,
        "`parser` is built **twice**: once as it is, and once with the feature `trace`, which `store` asks for. \
         Ask for it in one place:\n\n```toml\nparser = { path = \"parser\", features = [\"trace\"] }\n```",
    );
}

fn change_of_mind(stage: &mut Stage) {
    stage.user(1_800, "Then remove the feature everywhere.");
    stage.answer(1_000, "Done: `trace` is gone from `parser`, `store` and the tests.");
    stage.beat(900, Act::Undo);
    stage.user(700, "No, keep it for the tests. Remove it from the library alone.");
    stage.tools(
        800,
        "The tests turn it on by themselves, so the library can do without.",
        "",
        &[(
            "terminal",
            json!({"command": "cargo test --workspace"}),
            1_700,
            "test result: ok. 214 passed; 0 failed",
        )],
    );
    stage.answer(800, "The library no longer asks for `trace`, the tests do. All 214 of them pass.");
}

fn long_work(stage: &mut Stage) {
    stage.user(1_600, "Good. Now measure the build again, from scratch.");
    stage.tools(
        700,
        "From scratch means without the target directory.",
        "I measure three times, to be sure.",
        &[(
            "terminal",
            json!({"command": "hyperfine --runs 3 --prepare 'cargo clean' 'cargo build'"}),
            2_200,
            "Time (mean ± σ):  49.7 s ± 0.6 s",
        )],
    );
    stage.beat(600, Act::BeginCompaction);
    stage.beat(1_400, Act::Compact(
        "The build was slow because `parser` was built twice, with and without the feature `trace`. The library no \
         longer asks for it; the tests do. The person wants the build measured from scratch.",
    ));
    stage.answer(900, "From scratch it takes 49.7 s now; it was 96.4 s.");
}

fn small_talk(stage: &mut Stage) {
    stage.user(1_500, "Write me one line for the changelog.");
    stage.answer(900, "*Builds take half the time: `parser` is built once.*");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_turns_hold_tools_in_parallel_an_undo_and_a_compaction() {
        let acts: Vec<Act> = script(3, Pace::Fast).into_iter().map(|beat| beat.act).collect();
        assert!(acts.iter().any(|act| matches!(act, Act::Store(message) if message.calls.len() > 1)));
        assert_eq!(acts.iter().filter(|act| **act == Act::Undo).count(), 1);
        assert_eq!(acts.iter().filter(|act| matches!(act, Act::Compact(_))).count(), 1);
    }

    #[test]
    fn each_call_has_an_id_of_its_own_and_a_result() {
        let (mut calls, mut results) = (Vec::new(), Vec::new());
        for beat in script(8, Pace::Fast) {
            if let Act::Store(message) = beat.act {
                calls.extend(message.calls.into_iter().map(|call| call.id));
                results.extend(message.result_of.map(|(call, _)| call));
            }
        }
        assert_eq!(calls, results);
        calls.dedup();
        assert_eq!(calls.len(), results.len());
    }
}
