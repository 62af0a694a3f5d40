//! A pretend Hermes: writes a state.db as the real one does, in transactions that take the lock at their start and are
//! synced. The one part of this program that writes to such a file, and only to one that it made itself.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior, params};
use serde_json::{Value, json};

/// The tables, which the real program's migrations lead to.
const SCHEMA: &str = include_str!("schema.sql");
const FULL_TEXT: &str = include_str!("full_text.sql");
/// The model that answers.
pub const MODEL: &str = "demo-model";
/// Rows of one rewrite are stamped this far apart, in s.
const STEP: f64 = 1e-6;

/// A row of `messages` before it has an id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// `user`, `assistant` or `tool`.
    pub role: &'static str,
    /// What is said.
    pub content: String,
    /// What the model thought before.
    pub reasoning: Option<String>,
    /// The tools it calls.
    pub calls: Vec<Call>,
    /// The call that this is the result of, and its tool.
    pub result_of: Option<(String, &'static str)>,
    /// Why the model stopped.
    pub finish: Option<&'static str>,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// What pairs it with its result.
    pub id: String,
    /// The tool.
    pub name: &'static str,
    /// Its arguments.
    pub arguments: Value,
}

/// What a commit has left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Committed {
    /// The row.
    pub row: i64,
    /// When the commit was done.
    pub at: Instant,
}

/// The writer.
pub struct Hermes {
    conn: Connection,
    session: &'static str,
    /// The live transcript, which a compaction writes again.
    live: Vec<(i64, Message)>,
}

impl Hermes {
    /// Makes the file, with a terminal's session that starts now.
    pub fn create(path: &Path, session: &'static str, workspace: &Path) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut conn = Connection::open_with_flags(path, flags)?;
        conn.busy_timeout(Duration::from_secs(1))?;
        conn.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;",
        )?;
        commit(&mut conn, |write| {
            write.execute_batch(SCHEMA)?;
            write.execute_batch(FULL_TEXT)?;
            write.execute(
                "INSERT INTO sessions (id, source, model, started_at, cwd) VALUES (?1, 'cli', ?2, ?3, ?4)",
                params![session, MODEL, now(), workspace.to_string_lossy()],
            )
        })?;
        Ok(Self { conn, session, live: Vec::new() })
    }

    /// Stores a message; the model's after what it cost.
    pub fn append(&mut self, message: Message) -> rusqlite::Result<Committed> {
        let session = self.session;
        if message.role == "assistant" {
            commit(&mut self.conn, |write| {
                let count = "UPDATE sessions SET input_tokens = input_tokens + ?2, output_tokens = output_tokens + ?3, \
                             cache_read_tokens = cache_read_tokens + ?4, api_call_count = api_call_count + 1, \
                             estimated_cost_usd = coalesce(estimated_cost_usd, 0) + 0.0031, \
                             cost_status = 'estimated' WHERE id = ?1";
                write.execute(count, params![session, 610, 96, 4_200])
            })?;
        }
        let calls = u32::try_from(message.calls.len()).unwrap_or(u32::MAX);
        let row = commit(&mut self.conn, |write| {
            let row = insert(write, session, &message, now())?;
            let count = "UPDATE sessions SET message_count = message_count + 1, \
                         tool_call_count = tool_call_count + ?2 WHERE id = ?1";
            write.execute(count, params![session, calls])?;
            Ok(row)
        })?;
        let committed = Committed { row, at: Instant::now() };
        self.live.push((row, message));
        Ok(committed)
    }

    /// `/undo`: takes back the live rows from the person's last message on. They stay, inactive.
    pub fn undo_turn(&mut self) -> rusqlite::Result<()> {
        let session = self.session;
        let last = self.live.iter().rev().find(|(_, message)| message.role == "user");
        let Some(first) = last.map(|(row, _)| *row) else { return Ok(()) };
        commit(&mut self.conn, |write| {
            let hide = "UPDATE messages SET active = 0 WHERE session_id = ?1 AND id >= ?2 AND active = 1";
            write.execute(hide, params![session, first])?;
            write.execute("UPDATE sessions SET rewind_count = rewind_count + 1 WHERE id = ?1", [session])
        })?;
        self.live.retain(|(row, _)| *row < first);
        Ok(())
    }

    /// Begins to compact: takes the lock that says so.
    pub fn begin_compaction(&mut self) -> rusqlite::Result<()> {
        let session = self.session;
        commit(&mut self.conn, |write| {
            let lock = "INSERT OR REPLACE INTO compression_locks VALUES (?1, 'demo', ?2, ?2 + 600)";
            write.execute(lock, params![session, now()])
        })?;
        Ok(())
    }

    /// Compacts in place, in one transaction: archives what is live, and writes the first `head` and last `tail` rows
    /// again with a summary between them.
    pub fn compact(&mut self, head: usize, tail: usize, summary: &str) -> rusqlite::Result<Rewritten> {
        let session = self.session;
        let mut kept = std::mem::take(&mut self.live);
        let back = kept.split_off(kept.len().saturating_sub(tail));
        kept.truncate(head);
        let framed = Message { role: "assistant", content: frame(summary), ..Message::default() };
        kept.push((0, framed));
        let place = kept.len() - 1;
        kept.extend(back);
        commit(&mut self.conn, |write| {
            let archive =
                "UPDATE messages SET active = 0, compacted = 1 WHERE session_id = ?1 AND active = 1";
            write.execute(archive, [session])?;
            let mut clock = now();
            for (row, message) in &mut kept {
                *row = insert(write, session, message, clock)?;
                clock += STEP;
            }
            write.execute("DELETE FROM compression_locks WHERE session_id = ?1", [session])
        })?;
        let at = Instant::now();
        self.live.clone_from(&kept);
        let (summary, _) = kept.remove(place);
        Ok(Rewritten { summary, again: kept, at })
    }

    /// Names the session.
    pub fn name(&mut self, title: &str) -> rusqlite::Result<()> {
        let session = self.session;
        commit(&mut self.conn, |write| {
            write.execute("UPDATE sessions SET title = ?2 WHERE id = ?1", params![session, title])
        })?;
        Ok(())
    }
}

/// What a compaction has left.
#[derive(Clone, Debug, PartialEq)]
pub struct Rewritten {
    /// The summary's row.
    pub summary: i64,
    /// The rows that were written again.
    pub again: Vec<(i64, Message)>,
    /// When the commit was done.
    pub at: Instant,
}

fn commit<T>(
    conn: &mut Connection,
    write: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let result = write(&transaction)?;
    transaction.commit()?;
    Ok(result)
}

fn insert(write: &Transaction<'_>, session: &str, message: &Message, at: f64) -> rusqlite::Result<i64> {
    let calls = message.calls.iter().map(|Call { id, name, arguments }| {
        json!({"id": id, "call_id": id, "response_item_id": format!("fc_{id}"), "type": "function",
            "function": {"name": name, "arguments": arguments.to_string()}})
    });
    let calls: Vec<Value> = calls.collect();
    let calls = (!calls.is_empty()).then(|| Value::from(calls).to_string());
    let (call, tool) = message.result_of.clone().unzip();
    let add = "INSERT INTO messages (session_id, role, content, tool_calls, tool_call_id, tool_name, finish_reason, \
               reasoning, reasoning_content, timestamp) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9)";
    write.prepare_cached(add)?.execute(params![
        session,
        message.role,
        message.content,
        calls,
        call,
        tool,
        message.finish,
        message.reasoning,
        at
    ])?;
    Ok(write.last_insert_rowid())
}

/// A summary in the frame that a compaction puts around it.
fn frame(summary: &str) -> String {
    format!(
        "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted into the summary below. \
         The current session state may reflect work described here — avoid repeating it:\n{summary}\n\n\
         --- END OF CONTEXT SUMMARY — respond to the message below, not the summary above ---"
    )
}

/// Seconds since the epoch.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
