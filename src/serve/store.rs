//! The conversations, in one `SQLite` file of their own.
//!
//! What a person sees of a conversation is a row of *entries*, numbered in the order in which they came: its items, and
//! beside them reasoning and interrupts, which the API does not list. All else is its *state*: title, status, figures.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::event::{Change, CompactionStatus, Event, StatusWord, Todo};
use crate::state::{StateError, dir, lock};

mod entries;

pub use entries::{Entry, ItemsQuery};

/// Marks a file as ours (`PRAGMA application_id`).
const OURS: i32 = 0x686d_7273;
/// The version of the tables.
const VERSION: i32 = 1;
/// How much of the first message names a conversation that has no title, in characters.
const PREVIEW: usize = 80;

const TABLES: &str = "
CREATE TABLE conversations (
  id TEXT PRIMARY KEY, created_at_ms INTEGER NOT NULL, updated_at_ms INTEGER NOT NULL, state TEXT NOT NULL) STRICT;
CREATE INDEX conversations_by_update ON conversations(updated_at_ms);
CREATE TABLE entries (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, conversation TEXT NOT NULL REFERENCES conversations(id), kind TEXT NOT NULL,
  item_id TEXT UNIQUE, source_id TEXT, at_ms INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
CREATE INDEX entries_of ON entries(conversation, seq);
CREATE INDEX items_of ON entries(conversation, seq) WHERE item_id IS NOT NULL;
CREATE UNIQUE INDEX one_item_a_source ON entries(conversation, source_id) WHERE source_id IS NOT NULL;
";

/// Why conversations can't be kept.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file or its directory can't be used.
    #[error("{path}: {cause}")]
    File {
        /// The file.
        path: PathBuf,
        /// What `SQLite` said.
        cause: rusqlite::Error,
    },
    /// A newer program wrote it.
    #[error("{path} was written by a newer hermes-mirror")]
    Newer {
        /// The file.
        path: PathBuf,
    },
    /// It is something else.
    #[error("{path} is no file of conversations")]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// Its directory can't be made, or another server has it.
    #[error(transparent)]
    State(#[from] StateError),
}

impl StoreError {
    /// What can be done about it.
    pub(super) fn help(&self) -> Option<&'static str> {
        match self {
            Self::File { .. } => {
                Some("check that the disk is not full and that you may write there, or name another file")
            }
            Self::Newer { .. } => Some("install the newer version again, or name another file"),
            Self::NotOurs { .. } => Some("name another file, or one that does not exist yet"),
            // It says so itself.
            Self::State(_) => None,
        }
    }
}

/// What is known of a conversation as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Its title.
    pub title: Option<String>,
    /// How the person's first message begins.
    pub preview: Option<String>,
    /// Whether it runs.
    pub status: StatusWord,
    /// What it waits for.
    pub blocked_on: Option<String>,
    /// The turn that runs.
    pub active_response_id: Option<String>,
    /// The Hermes session it shows.
    pub external_session_id: Option<String>,
    /// What was written on it when it was made.
    pub labels: BTreeMap<String, String>,
    /// The model that answers.
    pub llm_model: Option<String>,
    /// Its figures.
    pub usage: Map<String, Value>,
    /// Its task list.
    pub todos: Vec<Todo>,
    /// How its last compaction stands.
    pub compaction: CompactionStatus,
}

/// By what conversations are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SortBy {
    /// When they changed.
    #[default]
    UpdatedAt,
    /// When they were made.
    CreatedAt,
}

impl SortBy {
    const fn column(self) -> &'static str {
        match self {
            Self::UpdatedAt => "updated_at_ms",
            Self::CreatedAt => "created_at_ms",
        }
    }
}

/// Which conversations are asked for; those of which agent does not matter, for there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct SessionsQuery {
    /// Most of them.
    pub limit: Option<u32>,
    /// The one behind which they begin.
    pub after: Option<String>,
    /// Their order.
    #[serde(default)]
    pub sort_by: SortBy,
}

/// A page of conversations.
#[derive(Clone, Debug, PartialEq)]
pub struct Listing {
    /// The conversations.
    pub data: Vec<Session>,
    /// Whether there are more behind them.
    pub has_more: bool,
}

/// A conversation, as the API describes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Session {
    /// Its id.
    pub id: String,
    /// Always `session`.
    pub object: &'static str,
    /// When it was made, in s since the epoch.
    pub created_at: i64,
    /// When it last changed, in s since the epoch.
    pub updated_at: i64,
    /// The rest.
    #[serde(flatten)]
    pub state: State,
}

/// The open file; one process has it.
#[derive(Debug)]
pub struct Store {
    conn: Connection,
    path: PathBuf,
    changes: (u64, u64),
    _lock: lock::Held,
}

impl Store {
    /// Opens the file, making it if need be.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        if let Some(parent) = path.parent() {
            dir::create(parent)?;
        }
        let mut beside = path.clone().into_os_string();
        beside.push(".lock");
        let held = lock::take(Path::new(&beside), &path.display().to_string())?;
        let conn = connect(&path)?;
        Ok(Self { conn, path, changes: (0, 0), _lock: held })
    }

    /// How often anything has changed since the file was opened, and how often what a list of conversations shows.
    pub fn changes(&self) -> (u64, u64) {
        self.changes
    }

    fn error(&self, cause: rusqlite::Error) -> StoreError {
        StoreError::File { path: self.path.clone(), cause }
    }

    /// Makes a conversation.
    pub fn create(
        &mut self,
        title: Option<String>,
        labels: BTreeMap<String, String>,
    ) -> Result<Session, StoreError> {
        let state = json!(State { title, labels, ..State::default() }).to_string();
        let make = "INSERT INTO conversations (id, created_at_ms, updated_at_ms, state) \
                    VALUES ('conv_' || lower(hex(randomblob(16))), ?1, ?1, ?2) \
                    RETURNING id, created_at_ms, updated_at_ms, state";
        let session = self.conn.query_row(make, params![now_ms(), state], session);
        let session = session.map_err(|e| self.error(e))?;
        self.changed(true);
        Ok(session)
    }

    /// One conversation.
    pub fn session(&self, id: &str) -> Result<Option<Session>, StoreError> {
        let find = "SELECT id, created_at_ms, updated_at_ms, state FROM conversations WHERE id = ?1";
        let run = || self.conn.prepare_cached(find)?.query_row([id], session).optional();
        run().map_err(|e| self.error(e))
    }

    /// The conversations that changed last, or were made last, newest first, from behind the one named `after`.
    /// `None`: there is no such one.
    pub fn sessions(&self, query: &SessionsQuery, limit: u32) -> Result<Option<Listing>, StoreError> {
        if let Some(after) = &query.after
            && self.session(after)?.is_none()
        {
            return Ok(None);
        }
        let order = query.sort_by.column();
        let list = format!(
            "SELECT id, created_at_ms, updated_at_ms, state FROM conversations WHERE ?1 IS NULL OR \
             (-{order}, id) > (SELECT -{order}, id FROM conversations WHERE id = ?1) \
             ORDER BY {order} DESC, id LIMIT ?2"
        );
        let run = || -> rusqlite::Result<Vec<Session>> {
            let mut statement = self.conn.prepare_cached(&list)?;
            statement.query_map(params![query.after, i64::from(limit) + 1], session)?.collect()
        };
        let mut data = run().map_err(|e| self.error(e))?;
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let has_more = data.len() > most;
        data.truncate(most);
        Ok(Some(Listing { data, has_more }))
    }

    /// Changes the state of a conversation. `None`: there is no such one.
    pub fn alter(&mut self, id: &str, alter: impl FnOnce(&mut State)) -> Result<Option<Session>, StoreError> {
        let Some(mut session) = self.session(id)? else { return Ok(None) };
        let before = session.state.clone();
        alter(&mut session.state);
        if session.state != before {
            let now = now_ms();
            let set = "UPDATE conversations SET state = ?2, updated_at_ms = ?3 WHERE id = ?1";
            let run = || {
                let state = json!(session.state).to_string();
                self.conn.prepare_cached(set)?.execute(params![id, state, now])
            };
            run().map_err(|e| self.error(e))?;
            session.updated_at = now / 1_000;
            self.changed(true);
        }
        Ok(Some(session))
    }

    /// Takes an event. `None`: there is no such conversation.
    pub fn take(&mut self, id: &str, event: &Event) -> Result<Option<Taken>, StoreError> {
        if let Event::Change(change) = event {
            let altered = self.alter(id, |state| apply(state, change))?;
            return Ok(altered.map(|_| Taken { item_id: None, fresh: true }));
        }
        let Some(session) = self.session(id)? else { return Ok(None) };
        let taken = self.append(id, event)?;
        if let Event::Item { item, .. } = event
            && session.state.preview.is_none()
            && let Some(preview) = preview(item)
        {
            self.alter(id, |state| state.preview = Some(preview))?;
        }
        Ok(Some(taken))
    }

    fn changed(&mut self, list: bool) {
        self.changes.0 += 1;
        self.changes.1 += u64::from(list);
    }
}

/// What became of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The item that it made, or had made before.
    pub item_id: Option<String>,
    /// Whether it was new.
    pub fresh: bool,
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    if !path.exists() {
        // Where that can't be, `SQLite` says why.
        let _ = dir::create_database(path);
    }
    let open = || -> rusqlite::Result<(Connection, i32, i32)> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let conn = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        let number = |pragma: &str| conn.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get(0));
        let (owner, version) = (number("application_id")?, number("user_version")?);
        Ok((conn, owner, version))
    };
    let fault = |cause: rusqlite::Error| match cause.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => StoreError::NotOurs { path: path.to_owned() },
        _ => StoreError::File { path: path.to_owned(), cause },
    };
    let (conn, owner, version) = open().map_err(fault)?;
    let tables: i64 =
        conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(fault)?;
    match (owner, version) {
        (0, 0) if tables == 0 => {
            let make = format!(
                "PRAGMA journal_mode = WAL; BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {OURS}; \
                 PRAGMA user_version = {VERSION}; COMMIT;"
            );
            conn.execute_batch(&make).map_err(fault)?;
        }
        (OURS, VERSION) => {}
        (OURS, VERSION..) => return Err(StoreError::Newer { path: path.to_owned() }),
        _ => return Err(StoreError::NotOurs { path: path.to_owned() }),
    }
    conn.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;").map_err(fault)?;
    Ok(conn)
}

fn session(row: &rusqlite::Row<'_>) -> rusqlite::Result<Session> {
    let state: String = row.get(3)?;
    let state = serde_json::from_str(&state).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(3, rusqlite::types::Type::Text, Box::new(error))
    })?;
    let s = |at| row.get::<_, i64>(at).map(|ms| ms / 1_000);
    Ok(Session { id: row.get(0)?, object: "session", created_at: s(1)?, updated_at: s(2)?, state })
}

fn apply(state: &mut State, change: &Change) {
    match change {
        Change::Status(status) => {
            state.status = status.word;
            state.blocked_on.clone_from(&status.blocked_on);
            let runs = matches!(status.word, StatusWord::Running | StatusWord::Waiting);
            state.active_response_id = status.response_id.clone().filter(|_| runs);
        }
        Change::Usage(usage) => {
            if let Some(model) = usage.get("model").and_then(Value::as_str) {
                state.llm_model = Some(model.to_owned());
            }
            state.usage.extend(usage.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        Change::Title(title) => state.title = Some(title.clone()),
        Change::Model(model) => state.llm_model = Some(model.clone()),
        Change::Todos(todos) => state.todos.clone_from(todos),
        Change::Compaction(status) => state.compaction = *status,
    }
}

/// How a message of the person begins; `None` for all else.
fn preview(item: &Map<String, Value>) -> Option<String> {
    let is_persons =
        item.get("role").and_then(Value::as_str) == Some("user") && !item.contains_key("is_meta");
    let parts = item.get("content").filter(|_| is_persons)?.as_array()?;
    let text = parts.iter().find_map(|part| part.get("text")?.as_str()).unwrap_or_default();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(line.chars().take(PREVIEW).collect()).filter(|line: &String| !line.is_empty())
}

/// Milliseconds since the epoch.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
