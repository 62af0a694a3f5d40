//! A state.db as Hermes writes it, by version: tables, indexes, transactions and rewrites, without Hermes itself.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::types::Value;
use rusqlite::{Connection, ToSql, Transaction, TransactionBehavior, params, params_from_iter};

pub use super::hermes_message::{Message, framed, merged};

/// Which Hermes wrote the file; the columns follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// No `cwd`, `active`, `compacted`, `observed`.
    V13,
    V18,
    V19,
    /// With `display_kind`; a compaction keeps the rows' times, its summary is in the user's role.
    V20,
}

/// Where a compaction puts its summary.
#[derive(Clone, Copy, Debug)]
pub enum Summary<'a> {
    Row(&'a str),
    /// Into the first row of the kept tail, where there is one.
    Merged(&'a str),
}

/// What a compaction keeps: so many live rows from the start, and so many from the end.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    pub head: usize,
    pub tail: usize,
}

/// The writer's connection.
pub struct HermesDb {
    pub conn: Connection,
    pub version: Version,
    pub path: PathBuf,
}

impl HermesDb {
    /// Makes the file with its tables, in WAL mode, as Hermes 0.19 does.
    pub fn create(path: &Path) -> Self {
        Self::create_as(path, Version::V19)
    }

    pub fn create_as(path: &Path, version: Version) -> Self {
        let db = Self::open(path, version, "WAL");
        db.create_tables();
        db
    }

    /// Opens the file and makes no table.
    pub fn open(path: &Path, version: Version, journal_mode: &str) -> Self {
        let db = Self::reopen(path, version);
        db.conn.execute_batch(&format!("PRAGMA journal_mode = {journal_mode}")).unwrap();
        db
    }

    /// Opens a file that has its tables, and leaves it in its mode.
    #[allow(clippy::disallowed_methods, reason = "this is the writer")]
    pub fn reopen(path: &Path, version: Version) -> Self {
        let conn = Connection::open(path).unwrap();
        conn.busy_timeout(Duration::from_secs(5)).unwrap();
        conn.execute_batch("PRAGMA synchronous = FULL").unwrap();
        Self { conn, version, path: path.to_owned() }
    }

    pub fn create_tables(&self) {
        let columns = |list: &[(Version, &str)]| {
            let known = list.iter().filter(|(since, _)| *since <= self.version);
            known.map(|(_, column)| *column).collect::<Vec<_>>().join(", ")
        };
        let sessions = format!("CREATE TABLE sessions ({});", columns(SESSIONS));
        let messages = format!("CREATE TABLE messages ({});", columns(MESSAGES));
        let active = if self.version >= Version::V18 { INDEXES_ON_ACTIVE } else { "" };
        let locks = if self.version >= Version::V18 { LOCKS } else { "" };
        let usage = if self.version >= Version::V19 { MODEL_USAGE } else { "" };
        let schema = format!(
            "BEGIN IMMEDIATE; {sessions} {messages} {locks} {usage} {INDEXES} {active} {FULL_TEXT} COMMIT;"
        );
        self.conn.execute_batch(&schema).unwrap();
    }

    /// A terminal's session that starts now, in `cwd` where the version records one.
    pub fn session(&mut self, id: &str, cwd: Option<&Path>) {
        self.session_with(id, &[("cwd", cwd.map(|cwd| cwd.to_string_lossy().into_owned()).into())]);
    }

    /// A session with some columns of its own; those that the version lacks are left out.
    pub fn session_with(&mut self, id: &str, columns: &[(&str, Value)]) {
        let mut row: Vec<(&str, Value)> = vec![
            ("id", id.to_owned().into()),
            ("source", "cli".to_owned().into()),
            ("started_at", now().into()),
            ("model", "stub-model".to_owned().into()),
        ];
        for (name, value) in columns {
            row.retain(|(known, _)| known != name);
            row.push((name, value.clone()));
        }
        let version = self.version;
        self.commit(|write| insert(write, "sessions", version, &row));
    }

    /// Stores a message in a transaction of its own. Returns its id.
    pub fn append(&mut self, session: &str, message: &Message) -> i64 {
        let version = self.version;
        let calls = message.calls();
        self.commit(|write| {
            insert(
                write,
                "messages",
                version,
                &message.columns(session, message.timestamp.unwrap_or_else(now)),
            );
            let id = write.last_insert_rowid();
            write
                .execute(
                    "UPDATE sessions SET message_count = message_count + 1, \
                     tool_call_count = tool_call_count + ?2 WHERE id = ?1",
                    params![session, calls],
                )
                .unwrap();
            id
        })
    }

    /// Stores several messages, one transaction each.
    pub fn append_all(&mut self, session: &str, messages: &[Message]) {
        for message in messages {
            self.append(session, message);
        }
    }

    /// A plain turn: what was asked and the answer.
    pub fn turn(&mut self, session: &str, asked: &str, answer: &str) {
        self.append_all(session, &[Message::user(asked), Message::answer(answer)]);
    }

    /// Adds a model call to the session's counters: input beside the cache, output, cached.
    pub fn count_tokens(&mut self, session: &str, input: i64, output: i64, cached: i64) {
        self.commit(|write| {
            let add = "UPDATE sessions SET input_tokens = input_tokens + ?2, output_tokens = output_tokens + ?3, \
                       cache_read_tokens = cache_read_tokens + ?4 WHERE id = ?1";
            write.execute(add, params![session, input, output, cached]).unwrap();
        });
    }

    pub fn end_session(&mut self, session: &str, reason: &str) {
        self.commit(|write| {
            let end = "UPDATE sessions SET ended_at = ?2, end_reason = ?3 WHERE id = ?1 AND ended_at IS NULL";
            write.execute(end, params![session, now(), reason]).unwrap();
        });
    }

    /// `/undo`: takes back the live rows from `first` on. They stay, inactive.
    pub fn undo(&mut self, session: &str, first: i64) {
        self.commit(|write| {
            let hide = "UPDATE messages SET active = 0 WHERE session_id = ?1 AND id >= ?2 AND active = 1";
            write.execute(hide, params![session, first]).unwrap();
            write
                .execute("UPDATE sessions SET rewind_count = rewind_count + 1 WHERE id = ?1", [session])
                .unwrap();
        });
    }

    /// Compacts a session in place, in one transaction: archives what is live, inserts what is kept and the summary.
    pub fn compact_in_place(&mut self, session: &str, kept: Kept, summary: Summary<'_>) {
        let after = self.compacted(session, kept, summary);
        let version = self.version;
        self.commit(|write| {
            let archive =
                "UPDATE messages SET active = 0, compacted = 1 WHERE session_id = ?1 AND active = 1";
            write.execute(archive, [session]).unwrap();
            fill(write, version, session, &after);
        });
    }

    /// Compacts a session into a child: the whole sequence, in Hermes's order.
    pub fn compact_by_fork(&mut self, parent: &str, child: &str, kept: Kept, summary: Summary<'_>) {
        self.begin_fork(parent, child);
        self.finish_fork(parent, child, kept, summary);
    }

    /// The fork's first part: the parent ended, and the child without rows.
    pub fn begin_fork(&mut self, parent: &str, child: &str) {
        self.end_session(parent, "compression");
        self.session_with(child, &[("parent_session_id", parent.to_owned().into()), ("cwd", Value::Null)]);
        self.commit(|write| {
            let number = "UPDATE sessions SET title = (SELECT title || ' #2' FROM sessions WHERE id = ?2) WHERE id = ?1";
            write.execute(number, [child, parent]).unwrap();
        });
    }

    /// The fork's second part: the child's first rows, in one transaction.
    pub fn finish_fork(&mut self, parent: &str, child: &str, kept: Kept, summary: Summary<'_>) {
        let after = self.compacted(parent, kept, summary);
        let version = self.version;
        self.commit(|write| fill(write, version, child, &after));
    }

    /// The same as versions up to 0.18 do it: the child's rows in a transaction each.
    pub fn compact_by_fork_row_by_row(
        &mut self,
        parent: &str,
        child: &str,
        kept: Kept,
        summary: Summary<'_>,
    ) {
        self.begin_fork(parent, child);
        let after = self.compacted(parent, kept, summary);
        self.append_all(child, &after);
    }

    /// Edit and resend: all but the first `kept` live rows go, and those come back as new ones.
    pub fn edit(&mut self, session: &str, kept: usize) {
        let mut prefix = self.live(session);
        prefix.truncate(kept);
        let (version, keeps_times) = (self.version, self.version >= Version::V20);
        let clear = if keeps_times {
            "UPDATE messages SET active = 0 WHERE session_id = ?1 AND active = 1"
        } else {
            "DELETE FROM messages WHERE session_id = ?1"
        };
        for message in prefix.iter_mut().filter(|_| !keeps_times) {
            message.timestamp = None;
        }
        self.commit(|write| {
            write.execute(clear, [session]).unwrap();
            fill(write, version, session, &prefix);
        });
    }

    /// The transcript after a compaction.
    fn compacted(&self, session: &str, kept: Kept, summary: Summary<'_>) -> Vec<Message> {
        let keeps_times = self.version >= Version::V20;
        let mut live = self.live(session);
        if !keeps_times {
            for message in &mut live {
                message.timestamp = None;
            }
        }
        let mut tail = live.split_off(live.len().saturating_sub(kept.tail));
        // A result without its call is not kept.
        let orphans = tail.iter().take_while(|message| message.role == "tool").count();
        tail.drain(..orphans);
        live.truncate(kept.head);
        match (summary, tail.first_mut()) {
            (Summary::Merged(text), Some(first)) => {
                first.content = Some(merged(first.content.as_deref().unwrap_or_default(), text));
            }
            (Summary::Row(text) | Summary::Merged(text), _) => {
                let row = if keeps_times {
                    Message::user(&framed(text))
                } else {
                    Message::answer(&framed(text)).unfinished()
                };
                live.push(row);
            }
        }
        live.extend(tail);
        live
    }

    /// The live rows of a session, oldest first.
    pub fn live(&self, session: &str) -> Vec<Message> {
        let live = if self.version >= Version::V18 { "AND active = 1" } else { "" };
        let select = format!(
            "SELECT role, content, tool_calls, tool_call_id, tool_name, finish_reason, reasoning, timestamp \
             FROM messages WHERE session_id = ?1 {live} ORDER BY id"
        );
        let mut statement = self.conn.prepare(&select).unwrap();
        let rows = statement.query_map([session], Message::read).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// Runs `write` in a transaction that takes the lock at its start, as every write of Hermes does.
    pub fn commit<T>(&mut self, write: impl FnOnce(&Transaction<'_>) -> T) -> T {
        let transaction = self.conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let result = write(&transaction);
        transaction.commit().unwrap();
        result
    }
}

/// Rows of one rewrite: those without a time of their own are stamped a microsecond apart.
fn fill(write: &Transaction<'_>, version: Version, session: &str, messages: &[Message]) {
    let mut clock = now();
    for message in messages {
        let at = message.timestamp.unwrap_or(clock);
        insert(write, "messages", version, &message.columns(session, at));
        clock = f64::max(clock + 1e-6, at + 1e-6);
    }
    let calls: i64 = messages.iter().map(Message::calls).sum();
    let count = i64::try_from(messages.len()).unwrap();
    let set = "UPDATE sessions SET message_count = ?2, tool_call_count = ?3 WHERE id = ?1";
    write.execute(set, params![session, count, calls]).unwrap();
}

fn insert(write: &Transaction<'_>, table: &str, version: Version, row: &[(&str, Value)]) {
    let list = if table == "sessions" { SESSIONS } else { MESSAGES };
    let has = |name: &str| {
        list.iter().any(|(since, column)| *since <= version && column.split(' ').next() == Some(name))
    };
    let row: Vec<_> = row.iter().filter(|(name, _)| has(name)).collect();
    let names: Vec<&str> = row.iter().map(|(name, _)| *name).collect();
    let marks = vec!["?"; names.len()].join(", ");
    let sql = format!("INSERT INTO {table} ({}) VALUES ({marks})", names.join(", "));
    let values = row.iter().map(|(_, value)| value as &dyn ToSql);
    write.prepare_cached(&sql).unwrap().execute(params_from_iter(values)).unwrap();
}

/// Seconds since the epoch.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

const SESSIONS: &[(Version, &str)] = &[
    (Version::V13, "id TEXT PRIMARY KEY"),
    (Version::V13, "source TEXT NOT NULL"),
    (Version::V13, "model TEXT"),
    (Version::V13, "model_config TEXT"),
    (Version::V13, "system_prompt TEXT"),
    (Version::V13, "parent_session_id TEXT REFERENCES sessions(id)"),
    (Version::V13, "started_at REAL NOT NULL"),
    (Version::V13, "ended_at REAL"),
    (Version::V13, "end_reason TEXT"),
    (Version::V13, "message_count INTEGER DEFAULT 0"),
    (Version::V13, "tool_call_count INTEGER DEFAULT 0"),
    (Version::V13, "input_tokens INTEGER DEFAULT 0"),
    (Version::V13, "output_tokens INTEGER DEFAULT 0"),
    (Version::V13, "cache_read_tokens INTEGER DEFAULT 0"),
    (Version::V13, "cache_write_tokens INTEGER DEFAULT 0"),
    (Version::V13, "estimated_cost_usd REAL"),
    (Version::V13, "actual_cost_usd REAL"),
    (Version::V13, "cost_status TEXT"),
    (Version::V13, "title TEXT"),
    (Version::V18, "cwd TEXT"),
    (Version::V18, "rewind_count INTEGER NOT NULL DEFAULT 0"),
    (Version::V18, "archived INTEGER NOT NULL DEFAULT 0"),
    (Version::V19, "profile_name TEXT"),
    (Version::V20, "title_source TEXT"),
    (Version::V20, "pinned INTEGER NOT NULL DEFAULT 0"),
];

const MESSAGES: &[(Version, &str)] = &[
    (Version::V13, "id INTEGER PRIMARY KEY AUTOINCREMENT"),
    (Version::V13, "session_id TEXT NOT NULL REFERENCES sessions(id)"),
    (Version::V13, "role TEXT NOT NULL"),
    (Version::V13, "content TEXT"),
    (Version::V13, "tool_call_id TEXT"),
    (Version::V13, "tool_calls TEXT"),
    (Version::V13, "tool_name TEXT"),
    (Version::V13, "timestamp REAL NOT NULL"),
    (Version::V13, "token_count INTEGER"),
    (Version::V13, "finish_reason TEXT"),
    (Version::V13, "reasoning TEXT"),
    (Version::V13, "reasoning_content TEXT"),
    (Version::V13, "reasoning_details TEXT"),
    (Version::V18, "platform_message_id TEXT"),
    (Version::V18, "observed INTEGER DEFAULT 0"),
    (Version::V18, "active INTEGER NOT NULL DEFAULT 1"),
    (Version::V18, "compacted INTEGER NOT NULL DEFAULT 0"),
    (Version::V19, "api_content TEXT"),
    (Version::V19, "effect_disposition TEXT"),
    (Version::V20, "display_kind TEXT"),
    (Version::V20, "display_metadata TEXT"),
];

const LOCKS: &str = "CREATE TABLE compression_locks (session_id TEXT PRIMARY KEY, holder TEXT NOT NULL,
  acquired_at REAL NOT NULL, expires_at REAL NOT NULL);";

const MODEL_USAGE: &str = "CREATE TABLE session_model_usage (
  session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE, model TEXT NOT NULL,
  task TEXT NOT NULL DEFAULT '', input_tokens INTEGER NOT NULL DEFAULT 0, output_tokens INTEGER NOT NULL DEFAULT 0,
  cache_read_tokens INTEGER NOT NULL DEFAULT 0, cache_write_tokens INTEGER NOT NULL DEFAULT 0,
  reasoning_tokens INTEGER NOT NULL DEFAULT 0, estimated_cost_usd REAL NOT NULL DEFAULT 0,
  actual_cost_usd REAL NOT NULL DEFAULT 0, last_seen REAL, PRIMARY KEY (session_id, model, task));";

const INDEXES: &str = "CREATE INDEX idx_sessions_source ON sessions(source);
CREATE INDEX idx_sessions_parent ON sessions(parent_session_id);
CREATE INDEX idx_sessions_started ON sessions(started_at DESC);
CREATE UNIQUE INDEX idx_sessions_title_unique ON sessions(title) WHERE title IS NOT NULL;
CREATE INDEX idx_messages_session ON messages(session_id, timestamp);";

const INDEXES_ON_ACTIVE: &str = "CREATE INDEX idx_messages_session_active
  ON messages(session_id, active, timestamp);";

/// What makes one message some thirty frames in the log.
const FULL_TEXT: &str = "CREATE VIRTUAL TABLE messages_fts USING fts5(content);
CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages BEGIN
  INSERT INTO messages_fts(rowid, content) VALUES (new.id, concat_ws(' ', new.content, new.tool_name, new.tool_calls));
END;";
