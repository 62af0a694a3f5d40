//! Writing to stdout.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write};

use anyhow::Context;
use serde::Serialize;

/// JSON text with those characters escaped that would steer a terminal. Those below U+0020 JSON has escaped already;
/// the line ends between values are not within a string.
pub fn safe_json(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\n' {
            // Writing to a String can't fail.
            let _ = write!(safe, "\\u{:04x}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Pretty JSON and a line's end. Characters that would steer a terminal are escaped.
pub fn json(value: &impl Serialize) -> anyhow::Result<String> {
    let text = serde_json::to_string_pretty(value).context("cannot write JSON")?;
    Ok(safe_json(&text) + "\n")
}

/// Writes to stdout. A reader that has seen enough and went away is no failure.
pub fn print(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to stdout"),
    }
}
