//! Writing to stdout.

use std::io::{self, ErrorKind, Write};

use anyhow::Context;

/// Writes to stdout. A reader that has seen enough and went away is no failure.
pub fn print(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to stdout"),
    }
}
