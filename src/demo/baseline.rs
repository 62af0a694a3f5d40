//! What the mirror is compared with: the polling forwarder it replaces, reading the same database at the same time.
//!
//! Every 0.4 s, on a connection opened for each query and closed after it, it reads `session_id = ? AND id > ? AND
//! active = 1`, asks whether the session was compacted, and counts its completed turns. What it reads counts as shown at
//! that moment: its interpreter, its state files and its sending are spared it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use rusqlite::{Connection, OpenFlags};

const EVERY: Duration = Duration::from_millis(400);

/// Polls until `stop` is closed, and tells of each row when it has read it.
pub struct Baseline {
    /// The database.
    pub path: PathBuf,
    /// The session.
    pub session: &'static str,
}

impl Baseline {
    /// Runs. A poll that fails is made up for by the next one.
    pub fn run(&self, stop: &Receiver<()>, mut read: impl FnMut(i64, Instant)) {
        let mut last = 0;
        loop {
            if let Ok(rows) = self.poll(last) {
                let at = Instant::now();
                for row in rows {
                    last = row;
                    read(row, at);
                }
            }
            if stop.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    fn poll(&self, last: i64) -> rusqlite::Result<Vec<i64>> {
        let new = "SELECT id, content, tool_calls FROM messages WHERE session_id = ?1 AND id > ?2 AND active = 1 ORDER BY id";
        let rows = open(&self.path)?
            .prepare(new)?
            .query_map((self.session, last), |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<i64>>>()?;
        let compacted = "SELECT 1 FROM messages WHERE session_id = ?1 AND compacted = 1 LIMIT 1";
        open(&self.path)?.prepare(compacted)?.exists([self.session])?;
        let turns = "SELECT count(*) FROM messages WHERE session_id = ?1 AND role = 'assistant' AND tool_calls IS NULL";
        open(&self.path)?.query_row(turns, [self.session], |row| row.get::<_, i64>(0))?;
        Ok(rows)
    }
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    conn.busy_timeout(Duration::from_secs(1))?;
    Ok(conn)
}
