//! What a server will never take, kept for a person to look at, send again or throw away.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Row, params};
use serde::Serialize;

use super::{FILE, schema};
use crate::ids::{ConversationId, ItemId, MessageId, ResponseId};
use crate::state::StateError;

/// A refused item, as delivery hands it over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDeadLetter {
    /// The row it came from.
    pub row: MessageId,
    /// Which of the row's items it is, from 1; 0 for a note on the row and those behind it.
    pub place: u32,
    /// What it is.
    pub kind: &'static str,
    /// The turn.
    pub turn: ResponseId,
    /// The request's body.
    pub body: Vec<u8>,
    /// What the server said.
    pub reason: String,
    /// An earlier try may have been stored, with its answer lost.
    pub doubtful: bool,
    /// When, in ms since the epoch.
    pub at_ms: i64,
}

/// A dead letter, as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeadLetter {
    /// Its number in this ledger.
    pub id: i64,
    /// The server it was meant for.
    pub server: String,
    /// The conversation it was meant for.
    pub conversation: String,
    /// The database it came from.
    pub source: String,
    /// The row it came from.
    pub row: MessageId,
    /// Which of the row's items it is, from 1; 0 for a note on the row and those behind it.
    pub place: u32,
    /// What it is.
    pub kind: String,
    /// The turn.
    pub turn: ResponseId,
    /// What the server said.
    pub reason: String,
    /// It may have been delivered all the same.
    pub maybe_delivered: bool,
    /// When it was refused, in ms since the epoch.
    pub at_ms: i64,
    /// The request's body.
    #[serde(skip)]
    pub body: Vec<u8>,
}

/// The dead letters of a state directory, for the command line: read beside a running mirror.
#[derive(Debug)]
pub struct DeadLetters {
    conn: Connection,
    path: std::path::PathBuf,
}

pub(super) fn write(conn: &Connection, mirror: i64, letter: &NewDeadLetter) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT OR REPLACE INTO dead_letter (mirror, row, place, kind, turn, body, reason, doubtful, at_ms) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        mirror,
        letter.row.get(),
        letter.place,
        letter.kind,
        letter.turn.as_str(),
        letter.body,
        letter.reason,
        letter.doubtful,
        letter.at_ms,
    ])
    .map(drop)
}

const SELECT: &str = "SELECT d.id, m.server, m.conversation, m.source, d.row, d.place, d.kind, d.turn, \
     d.reason, d.doubtful, d.at_ms, d.body FROM dead_letter d JOIN mirror m ON m.id = d.mirror";

impl DeadLetters {
    /// Opens the dead letters of a state directory; `None` where there is no ledger.
    pub fn open(directory: &Path) -> Result<Option<Self>, StateError> {
        let path = directory.join(FILE);
        if !path.exists() {
            return Ok(None);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || -> rusqlite::Result<Connection> {
            let conn = Connection::open_with_flags(&path, flags)?;
            conn.busy_timeout(Duration::from_secs(5))?;
            // A ledger of a newer program may still be understood: the query tells.
            if let Err(schema::Refusal::Sql(cause)) = schema::migrate(&conn) {
                return Err(cause);
            }
            conn.prepare(SELECT)?;
            Ok(conn)
        };
        match open() {
            Ok(conn) => Ok(Some(Self { conn, path })),
            Err(cause) => Err(StateError::Ledger { path, cause }),
        }
    }

    /// All of them, oldest first.
    pub fn list(&self) -> Result<Vec<DeadLetter>, StateError> {
        let list = || -> rusqlite::Result<Vec<DeadLetter>> {
            self.conn.prepare(&format!("{SELECT} ORDER BY d.id"))?.query_map([], decode)?.collect()
        };
        list().map_err(|cause| self.error(cause))
    }

    /// One of them; `None` where there is none of that number.
    pub fn get(&self, id: i64) -> Result<Option<DeadLetter>, StateError> {
        let get = || -> rusqlite::Result<Option<DeadLetter>> {
            let mut statement = self.conn.prepare(&format!("{SELECT} WHERE d.id = ?1"))?;
            statement.query_map([id], decode)?.next().transpose()
        };
        get().map_err(|cause| self.error(cause))
    }

    /// Removes one. Returns whether it was there.
    pub fn remove(&self, id: i64) -> Result<bool, StateError> {
        let removed = self.conn.execute("DELETE FROM dead_letter WHERE id = ?1", [id]);
        removed.map(|rows| rows > 0).map_err(|cause| self.error(cause))
    }

    /// The server has it: the letter goes, and the item is recorded with a digest of what was sent.
    pub fn settle(&self, id: i64, digest: u64, item: Option<&ItemId>) -> Result<(), StateError> {
        let settle = || -> rusqlite::Result<()> {
            let transaction = self.conn.unchecked_transaction()?;
            transaction.execute(
                "INSERT OR REPLACE INTO item (mirror, row, place, kind, digest, turn, item, late) \
                 SELECT mirror, row, place, kind, ?2, turn, ?3, 1 FROM dead_letter WHERE id = ?1",
                (id, digest.cast_signed(), item.map(ItemId::as_str)),
            )?;
            transaction.execute("DELETE FROM dead_letter WHERE id = ?1", [id])?;
            transaction.commit()
        };
        settle().map_err(|cause| self.error(cause))
    }

    /// Notes that a letter may have been delivered all the same.
    pub fn doubt(&self, id: i64) -> Result<(), StateError> {
        let noted = self.conn.execute("UPDATE dead_letter SET doubtful = 1 WHERE id = ?1", [id]);
        noted.map(drop).map_err(|cause| self.error(cause))
    }

    /// Whether an item of a conversation is on record, delivered from whatever source.
    pub fn accounts_for(
        &self,
        server: &str,
        conversation: &ConversationId,
        item: &ItemId,
    ) -> Result<bool, StateError> {
        self.conn
            .prepare_cached(
                "SELECT 1 FROM item i JOIN mirror m ON m.id = i.mirror \
                 WHERE m.server = ?1 AND m.conversation = ?2 AND i.item = ?3",
            )
            .and_then(|mut statement| statement.exists((server, conversation.as_str(), item.as_str())))
            .map_err(|cause| self.error(cause))
    }

    fn error(&self, cause: rusqlite::Error) -> StateError {
        StateError::Ledger { path: self.path.clone(), cause }
    }
}

fn decode(row: &Row<'_>) -> rusqlite::Result<DeadLetter> {
    Ok(DeadLetter {
        id: row.get(0)?,
        server: row.get(1)?,
        conversation: row.get(2)?,
        source: row.get(3)?,
        row: MessageId::new(row.get(4)?),
        place: row.get(5)?,
        kind: row.get(6)?,
        turn: ResponseId::new(row.get::<_, String>(7)?),
        reason: row.get(8)?,
        maybe_delivered: row.get(9)?,
        at_ms: row.get(10)?,
        body: row.get(11)?,
    })
}
