//! Baseline without events: ask `PRAGMA data_version` every millisecond.

use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::role::Part;
use super::tail::Tail;

const EVERY: Duration = Duration::from_millis(1);

/// Runs until its input closes.
pub fn play(part: &Part) -> Result<()> {
    let mut tail = Tail::open(part)?;
    let mut known = None;
    loop {
        let version: i64 =
            tail.conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        // Asked before the read, so that a commit during the read shows at the next look.
        if known != Some(version) {
            known = Some(version);
            tail.drain()?;
        }
        thread::sleep(EVERY);
    }
}
