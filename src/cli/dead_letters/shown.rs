//! How dead letters look: as lines, as a page, as JSON.

use std::fmt::Write;

use hermes_mirror::state::ledger::DeadLetter;
use serde::Serialize;
use serde_json::Value;

use crate::cli::output::json;
use crate::cli::table::aligned;
use crate::cli::when::rfc3339;

/// How much of a reason stands in the list, in characters.
const REASON: usize = 60;

const MAYBE: &str = "may have been delivered";

/// A letter in a list.
#[derive(Serialize)]
pub struct Entry<'a> {
    #[serde(flatten)]
    letter: &'a DeadLetter,
    /// `at_ms` in words.
    at: String,
}

impl<'a> Entry<'a> {
    /// All but the body.
    pub fn new(letter: &'a DeadLetter) -> Self {
        Self { letter, at: rfc3339(letter.at_ms) }
    }
}

/// A letter by itself.
#[derive(Serialize)]
pub struct Whole<'a> {
    #[serde(flatten)]
    entry: Entry<'a>,
    body: Value,
}

impl<'a> Whole<'a> {
    /// The letter with its body.
    pub fn new(letter: &'a DeadLetter) -> Self {
        Self { entry: Entry::new(letter), body: body(letter) }
    }
}

/// Null where there is none, a string where it is no JSON.
fn body(letter: &DeadLetter) -> Value {
    if letter.body.is_empty() {
        return Value::Null;
    }
    serde_json::from_slice(&letter.body)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&letter.body).into_owned()))
}

/// One line each.
pub fn table(letters: &[DeadLetter]) -> String {
    aligned(&letters.iter().map(cells).collect::<Vec<_>>())
}

fn cells(letter: &DeadLetter) -> Vec<String> {
    let mut reason = in_short(&letter.reason);
    if letter.maybe_delivered {
        // Writing to a String can't fail.
        let _ = write!(reason, "  [{MAYBE}]");
    }
    vec![
        letter.id.to_string(),
        rfc3339(letter.at_ms),
        letter.conversation.clone(),
        format!("row {}", letter.row),
        letter.kind.clone(),
        reason,
    ]
}

/// The reason without the request that was refused, which the other columns tell, and cut.
fn in_short(reason: &str) -> String {
    let parts = reason.split(": ").filter(|part| !part.starts_with("POST /"));
    let reason = parts.collect::<Vec<_>>().join(": ");
    if reason.chars().nth(REASON).is_none() {
        return reason;
    }
    let mut short: String = reason.chars().take(REASON - 1).collect();
    short.push('…');
    short
}

/// All there is to a letter, its body last.
pub fn page(letter: &DeadLetter) -> anyhow::Result<String> {
    let delivered = if letter.maybe_delivered { MAYBE } else { "surely not delivered" };
    let mut text = String::new();
    for (name, value) in [
        ("number", letter.id.to_string()),
        ("refused", rfc3339(letter.at_ms)),
        ("reason", letter.reason.clone()),
        ("fate", delivered.to_owned()),
        ("server", letter.server.clone()),
        ("conversation", letter.conversation.clone()),
        ("source", letter.source.clone()),
        ("row", format!("{}, item {} of it", letter.row, letter.place)),
        ("kind", letter.kind.clone()),
        ("turn", letter.turn.to_string()),
    ] {
        let _ = writeln!(text, "{name:<12}  {value}");
    }
    text.push('\n');
    text.push_str(&json(&body(letter))?);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use hermes_mirror::ids::{MessageId, ResponseId};

    use super::*;

    fn letter(body: &[u8]) -> DeadLetter {
        DeadLetter {
            id: 3,
            server: "http://h".to_owned(),
            conversation: "conv_1".to_owned(),
            source: "/s.db".to_owned(),
            row: MessageId::new(9),
            place: 1,
            kind: "user".to_owned(),
            turn: ResponseId::new("hermes_turn_9"),
            reason: "ü".repeat(100),
            maybe_delivered: true,
            at_ms: 0,
            body: body.to_vec(),
        }
    }

    #[test]
    fn a_long_reason_is_cut_in_the_list_alone() {
        let letter = letter(b"{}");
        let line = table(std::slice::from_ref(&letter));
        assert!(
            line.contains(&format!("{}…  [may have been delivered]\n", "ü".repeat(REASON - 1))),
            "{line}"
        );
        assert!(page(&letter).unwrap().contains(&letter.reason));
    }

    #[test]
    fn a_body_is_shown_whatever_it_holds_and_steers_no_terminal() {
        let shown = |body: &[u8]| page(&letter(body)).unwrap();
        assert!(shown("{\"a\":\"\u{9b}2J\u{7f}\"}".as_bytes()).ends_with("\"a\": \"\\u009b2J\\u007f\"\n}\n"));
        assert!(shown(b"no \xff JSON").ends_with("\n\"no \u{fffd} JSON\"\n"));
        assert!(shown(b"").ends_with("\nnull\n"));
    }
}
