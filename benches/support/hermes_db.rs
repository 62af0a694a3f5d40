//! A state.db as hermes-agent 0.19.0 lays it out: the tables a mirror reads, every index on them, and the two
//! full-text indexes that make one message some thirty WAL frames.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use rusqlite::{Connection, params};

use super::script::{self, Kind, Line};

const SCHEMA: &str = include_str!("../../src/demo/schema.sql");

/// The full-text indexes. What is there before they are is not in them: nobody here searches, and filling them takes
/// most of the time and the space of a long history.
const FULL_TEXT: &str = include_str!("../../src/demo/full_text.sql");

/// What is in the file before anything is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Sessions that are mirrored, each into a conversation of its own.
    pub sessions: u32,
    /// Rows of these sessions that were mirrored before.
    pub history: u32,
    /// Sessions that nobody mirrors, of [`FOREIGN_ROWS`] rows each.
    pub foreign: u32,
    /// Rows of the mirrored sessions that are still to be mirrored.
    pub backlog: u32,
}

/// Rows of a session that nobody mirrors: what Hermes's sessions have on average.
pub const FOREIGN_ROWS: u32 = 16;
/// Between two rows that were there before, in s: far more than between the rows of one transaction.
const APART: f64 = 0.01;
/// Between two sessions that were there before, in s.
const SESSIONS_APART: f64 = 600.0;

impl Layout {
    /// One session without a past.
    pub const FRESH: Self = Self { sessions: 1, history: 0, foreign: 0, backlog: 0 };

    /// The last row that is not to be mirrored.
    pub fn cursor(&self) -> u32 {
        self.foreign * FOREIGN_ROWS + self.history
    }

    /// How long before the end of the filling the first row of the backlog was written, in s.
    pub fn backlog_s(&self) -> f64 {
        f64::from(self.backlog) * APART
    }
}

/// Makes the file and leaves no -wal behind.
///
/// The `cwd` and `started_at` of the mirrored sessions are set when the file is put to use.
pub fn create(path: &Path, layout: &Layout, seed: u64) -> Result<()> {
    let mut conn = Connection::open(path).with_context(|| format!("create {}", path.display()))?;
    // Nobody else looks at the file yet, and a crash means starting over.
    conn.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")?;
    conn.execute_batch(SCHEMA)?;
    let fill = conn.transaction()?;
    let end = now().as_secs_f64();
    add_foreign(&fill, layout.foreign, seed, end)?;
    for number in 0..layout.sessions {
        fill.execute(
            "INSERT INTO sessions (id, source, model, started_at) VALUES (?1, 'cli', 'bench-model', 0)",
            [script::session(number)],
        )?;
    }
    let rows = layout.history + layout.backlog;
    let past = (1..=layout.history).map(|seq| ("past", seq));
    for (place, (prefix, seq)) in past.chain((1..=layout.backlog).map(|seq| ("row", seq))).enumerate() {
        let session = script::session(script::session_of(seq, layout.sessions));
        let before_end = f64::from(rows.saturating_sub(u32::try_from(place)?)) * APART;
        insert(&fill, &session, &script::line(prefix, seed, seq), end - before_end)?;
    }
    fill.commit()?;
    conn.execute_batch(FULL_TEXT)?;
    conn.execute_batch("PRAGMA journal_mode = WAL;")?;
    conn.close().map_err(|(_, error)| error)?;
    Ok(())
}

/// Sessions that began and ended long ago, in other directories.
fn add_foreign(fill: &Connection, sessions: u32, seed: u64, end: f64) -> Result<()> {
    for number in 0..sessions {
        let id = format!("20250101_120000_{number:06}");
        let started = end - f64::from(sessions - number + 1) * SESSIONS_APART;
        fill.prepare_cached(
            "INSERT INTO sessions (id, source, model, cwd, started_at, ended_at, end_reason)
             VALUES (?1, 'cli', 'bench-model', ?2, ?3, ?4, 'cli_close')",
        )?
        .execute(params![
            id,
            format!("/home/somebody/project-{}", number % 40),
            started,
            started + SESSIONS_APART / 2.0,
        ])?;
        for seq in 1..=FOREIGN_ROWS {
            insert(fill, &id, &script::line("else", seed, seq), started + f64::from(seq))?;
        }
    }
    Ok(())
}

/// Binds the mirrored sessions to the directory their terminals work in, as if they had been started then.
pub fn start_sessions(path: &Path, sessions: u32, workspace: &Path, started: f64) -> Result<()> {
    let mut conn = Connection::open(path)?;
    let update = conn.transaction()?;
    for number in 0..sessions {
        update.execute(
            "UPDATE sessions SET cwd = ?2, started_at = ?3 WHERE id = ?1",
            params![script::session(number), workspace.to_string_lossy(), started],
        )?;
    }
    update.commit()?;
    conn.close().map_err(|(_, error)| error)?;
    Ok(())
}

/// Opens the file as Hermes does: WAL, every commit synced.
pub fn open_as_hermes(path: &Path) -> Result<Connection> {
    let conn = Connection::open(path).with_context(|| format!("open {}", path.display()))?;
    conn.busy_timeout(Duration::from_secs(1))?;
    conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;")?;
    Ok(conn)
}

/// One message and the session's counters, inside the caller's transaction.
pub fn insert(conn: &Connection, session: &str, line: &Line, timestamp: f64) -> Result<()> {
    let calls = u32::from(line.kind == Kind::Call);
    let tool_name = (line.kind == Kind::ToolResult).then_some("terminal");
    conn.prepare_cached(
        "INSERT INTO messages (session_id, role, content, tool_call_id, tool_calls, tool_name, timestamp, finish_reason)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        session,
        line.kind.role(),
        line.content,
        line.tool_call_id,
        line.tool_calls,
        tool_name,
        timestamp,
        line.finish_reason,
    ])?;
    let model_call = u32::from(line.kind.role() == "assistant");
    conn.prepare_cached(
        "UPDATE sessions SET message_count = message_count + 1, tool_call_count = tool_call_count + ?2,
           input_tokens = input_tokens + 1000 * ?3, output_tokens = output_tokens + 50 * ?3 WHERE id = ?1",
    )?
    .execute(params![session, calls, model_call])?;
    Ok(())
}

/// Wall-clock time since the epoch: the one clock that two processes share.
pub fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
