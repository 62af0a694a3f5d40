//! The conversation that is written: which row comes when, and what it says.
//!
//! Everything is a function of the seed and the row's number, so that every subject sees the same schedule and the
//! check knows what to expect without asking the writer.

use std::time::Duration;

use rusqlite::types::Value;
use serde_json::json;

/// Rows of one turn: a question, a tool call, its result, the answer.
pub const ROWS_PER_TURN: u32 = 4;

/// What a row is in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    User,
    Call,
    ToolResult,
    Answer,
}

impl Kind {
    /// The kind of row `seq`, counted from 1.
    pub fn of(seq: u32) -> Self {
        match seq.wrapping_sub(1) % ROWS_PER_TURN {
            0 => Self::User,
            1 => Self::Call,
            2 => Self::ToolResult,
            _ => Self::Answer,
        }
    }

    /// The conversation items that a row of this kind becomes, sorted: a call row carries interim prose as well.
    pub fn item_types(self) -> &'static [&'static str] {
        match self {
            Self::User | Self::Answer => &["message"],
            Self::Call => &["function_call", "message"],
            Self::ToolResult => &["function_call_output"],
        }
    }

    /// Value of the `role` column.
    pub fn role(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Call | Self::Answer => "assistant",
            Self::ToolResult => "tool",
        }
    }
}

/// One row to write.
pub struct Line {
    pub kind: Kind,
    pub content: String,
    pub tool_calls: Value,
    pub tool_call_id: Value,
    pub finish_reason: Value,
}

/// Row `seq` of the script. `prefix` tells measured rows (`row`) from what was there before (`past`).
pub fn line(prefix: &str, seed: u64, seq: u32) -> Line {
    let kind = Kind::of(seq);
    let tag = tag(prefix, seq);
    let text = |value: String| Value::Text(value);
    let (tool_calls, tool_call_id, finish_reason) = match kind {
        Kind::User => (Value::Null, Value::Null, Value::Null),
        Kind::Call => (text(calls(&tag, seq)), Value::Null, text("tool_calls".to_owned())),
        Kind::ToolResult => (Value::Null, text(call_id(seq.wrapping_sub(1))), Value::Null),
        Kind::Answer => (Value::Null, Value::Null, text("stop".to_owned())),
    };
    Line { kind, content: format!("{tag} {}", prose(seed, seq)), tool_calls, tool_call_id, finish_reason }
}

/// The mark by which a row is known again at the sink.
pub fn tag(prefix: &str, seq: u32) -> String {
    format!("{prefix}-{seq:06}")
}

/// Number of the session that row `seq` belongs to, of `sessions` that take turns.
pub fn session_of(seq: u32, sessions: u32) -> u32 {
    seq.wrapping_sub(1) / ROWS_PER_TURN % sessions.max(1)
}

/// Hermes's id of session `number`.
pub fn session(number: u32) -> String {
    format!("20260101_120000_bench{number:03}")
}

/// Id of the conversation that shows session `number`.
pub fn conversation(number: u32) -> String {
    format!("{CONVERSATION}{number:03}")
}

/// Number of the session that the conversation of this id shows.
pub fn session_shown_in(conversation: &str) -> Option<u32> {
    conversation.strip_prefix(CONVERSATION)?.parse().ok()
}

/// The first row number that a text names.
pub fn seq_in(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("row-")?;
    rest.get(..6)?.parse().ok()
}

const CONVERSATION: &str = "conv_bench";

/// How long to wait before row `seq`.
pub fn gap(seed: u64, seq: u32, shortest: Duration, longest: Duration) -> Duration {
    let span = longest.saturating_sub(shortest);
    let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1);
    shortest + Duration::from_micros(mix(seed, seq) % micros)
}

fn calls(tag: &str, seq: u32) -> String {
    let id = call_id(seq);
    json!([{
        "id": id, "call_id": id, "response_item_id": null, "type": "function",
        "function": {"name": "terminal", "arguments": json!({"command": format!("echo {tag}")}).to_string()},
    }])
    .to_string()
}

fn call_id(seq: u32) -> String {
    format!("call_{seq:06}")
}

const WORDS: [&str; 12] = [
    "the", "reader", "asks", "whether", "a", "commit", "became", "visible", "before", "it", "looks", "again",
];

/// Between 20 and 83 words.
fn prose(seed: u64, seq: u32) -> String {
    let dice = mix(seed.rotate_left(17), seq);
    let skip = usize::try_from(dice % 12).unwrap_or(0);
    let count = usize::try_from(20 + (dice >> 8) % 64).unwrap_or(20);
    let words: Vec<&str> = WORDS.iter().copied().cycle().skip(skip).take(count).collect();
    words.join(" ")
}

/// The output function of `SplitMix64` over the pair: cheap, stateless, and good enough to scatter a schedule.
fn mix(seed: u64, seq: u32) -> u64 {
    let mut z = seed.wrapping_add(u64::from(seq).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
