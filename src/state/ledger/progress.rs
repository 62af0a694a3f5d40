//! One mirror's account in the ledger: where it stands, and each thing it has delivered.

use std::path::Path;

use rusqlite::{OptionalExtension, params};

use super::Ledger;
use super::dead_letters::{self, NewDeadLetter};
use crate::event::{Binding, Mark, OpenTurn, Passed, Resume, Rewind};
use crate::ids::{ConversationId, HermesSessionId, ItemId, MessageId, ResponseId};
use crate::state::StateError;

/// What an account is kept for: a conversation on a server, fed from a database.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The server's address.
    pub server: &'a str,
    /// The conversation.
    pub conversation: &'a ConversationId,
    /// The source database.
    pub source: &'a Path,
}

/// What an acknowledgement, or a refusal, adds to the account. All of it is written in one transaction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// How far the cursor has come.
    pub mark: Option<Mark>,
    /// A stored item.
    pub item: Option<DeliveredItem>,
    /// What became of a turn's closing edge.
    pub edge: Option<(ResponseId, EdgeStatus)>,
    /// What the server refused.
    pub dead_letter: Option<NewDeadLetter>,
    /// The title that the conversation was given.
    pub title: Option<String>,
    /// The first and the last row of an undo whose note is settled.
    pub undo: Option<(MessageId, MessageId)>,
}

/// An item that the server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveredItem {
    /// The row it came from.
    pub row: MessageId,
    /// Which of the row's items it is, from 1; 0 for a note on the row and those behind it.
    pub place: u32,
    /// What it is.
    pub kind: &'static str,
    /// A digest of what was sent.
    pub digest: u64,
    /// The turn.
    pub turn: ResponseId,
    /// The server's id for it.
    pub id: Option<ItemId>,
}

/// How an item on record stands in the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Behind the items of earlier rows and before those of later ones.
    InOrder,
    /// It was a dead letter first: nothing can be told from what stands before it.
    Late,
}

/// What became of a turn's closing edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeStatus {
    /// Its items are delivered, or could not be (`failed`); the edge is not yet.
    Owed {
        /// What the edge is to say.
        failed: bool,
    },
    /// `idle` was delivered.
    Idle,
    /// `failed` was delivered: an item of the turn could not be.
    Failed,
    /// The server refused it too often.
    GivenUp,
}

impl EdgeStatus {
    fn as_str(self) -> &'static str {
        match self {
            Self::Owed { .. } => "owed",
            Self::Idle => "idle",
            Self::Failed => "failed",
            Self::GivenUp => "given up",
        }
    }
}

/// A closing edge that the server has refused until now.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct OwedEdge {
    /// The turn that it closes.
    pub turn: ResponseId,
    /// Whether it says `failed`: an item of the turn could not be delivered.
    pub failed: bool,
}

/// One mirror's account.
#[derive(Clone, Debug)]
pub struct Account {
    pub(super) ledger: Ledger,
    pub(super) id: i64,
}

impl Account {
    /// The account for `key`, made if there is none.
    pub fn open(ledger: &Ledger, key: Key<'_>) -> Result<Self, StateError> {
        let parameters =
            (key.server.trim_end_matches('/'), key.conversation.as_str(), key.source.to_string_lossy());
        let open = || -> rusqlite::Result<i64> {
            let conn = ledger.conn();
            conn.execute(
                "INSERT OR IGNORE INTO mirror (server, conversation, source) VALUES (?1, ?2, ?3)",
                (&parameters.0, &parameters.1, &parameters.2),
            )?;
            conn.query_row(
                "SELECT id FROM mirror WHERE server = ?1 AND conversation = ?2 AND source = ?3",
                (&parameters.0, &parameters.1, &parameters.2),
                |row| row.get(0),
            )
        };
        let id = open().map_err(|e| ledger.error(e))?;
        Ok(Self { ledger: ledger.clone(), id })
    }

    /// Where to go on; `None` where nothing was followed yet.
    pub fn binding(&self) -> Result<Option<Binding>, StateError> {
        let read = |row: &rusqlite::Row<'_>| -> rusqlite::Result<Option<Binding>> {
            let Some(session) = row.get::<_, Option<String>>(0)? else { return Ok(None) };
            let partial = row.get::<_, Option<i64>>(2)?.zip(row.get::<_, Option<u32>>(3)?);
            let turn = row.get::<_, Option<String>>(4)?;
            let closed = row.get(5)?;
            Ok(Some(Binding {
                session: HermesSessionId::new(session),
                resume: Resume {
                    last: MessageId::new(row.get(1)?),
                    begins: false,
                    partial: partial.map(|(row, items)| (MessageId::new(row), items)),
                    turn: turn.map(|id| OpenTurn { id: ResponseId::new(id), closed }),
                    closed_turns: row.get::<_, Option<i64>>(6)?.map(i64::unsigned_abs),
                    waiting: Vec::new(),
                },
            }))
        };
        let conn = self.ledger.conn();
        let found = conn
            .prepare_cached(
                "SELECT session, last_row, partial_row, partial_items, turn, turn_closed, closed_turns \
                 FROM mirror WHERE id = ?1",
            )
            .and_then(|mut s| s.query_row([self.id], read));
        found.map_err(|e| self.ledger.error(e))
    }

    /// A session was bound, to go on from `binding`.
    pub fn bind(&self, binding: &Binding) -> Result<(), StateError> {
        let Resume { last, begins: _, partial, turn, closed_turns, waiting: _ } = &binding.resume;
        let parameters = params![
            self.id,
            binding.session.as_str(),
            last.get(),
            partial.map(|(row, _)| row.get()),
            partial.map(|(_, items)| items),
            turn.as_ref().map(|turn| turn.id.as_str()),
            turn.as_ref().is_some_and(|turn| turn.closed),
            closed_turns.map(|turns| i64::try_from(turns).unwrap_or(i64::MAX)),
        ];
        self.execute(
            "UPDATE mirror SET session = ?2, last_row = ?3, partial_row = ?4, partial_items = ?5, turn = ?6, \
             turn_closed = ?7, closed_turns = ?8 WHERE id = ?1",
            parameters,
        )
    }

    /// The session goes on in `child`; row ids are common to both.
    pub fn follow(&self, child: &HermesSessionId) -> Result<(), StateError> {
        let parameters = params![self.id, child.as_str()];
        self.execute("UPDATE mirror SET session = ?2, closed_turns = 0 WHERE id = ?1", parameters)
    }

    fn execute(&self, sql: &str, parameters: impl rusqlite::Params) -> Result<(), StateError> {
        let conn = self.ledger.conn();
        let done = conn.prepare_cached(sql).and_then(|mut s| s.execute(parameters));
        done.map(drop).map_err(|e| self.ledger.error(e))
    }

    /// Writes a record down.
    pub fn record(&self, record: &Record) -> Result<(), StateError> {
        let write = || -> rusqlite::Result<()> {
            let conn = self.ledger.conn();
            let transaction = conn.unchecked_transaction()?;
            if let Some(item) = &record.item {
                self.write_item(&transaction, item)?;
            }
            if let Some(letter) = &record.dead_letter {
                dead_letters::write(&transaction, self.id, letter)?;
            }
            if let Some((first, last)) = record.undo {
                transaction
                    .prepare_cached(
                        "INSERT OR REPLACE INTO undone (mirror, first, last) VALUES (?1, ?2, ?3)",
                    )?
                    .execute((self.id, first.get(), last.get()))?;
            }
            if let Some((turn, status)) = &record.edge {
                let failed = matches!(status, EdgeStatus::Owed { failed: true });
                transaction
                    .prepare_cached(
                        "INSERT OR REPLACE INTO turn (mirror, turn, status, failed) VALUES (?1, ?2, ?3, ?4)",
                    )?
                    .execute((self.id, turn.as_str(), status.as_str(), failed))?;
            }
            if let Some(title) = &record.title {
                transaction
                    .prepare_cached("UPDATE mirror SET title = ?2 WHERE id = ?1")?
                    .execute((self.id, title))?;
            }
            if let Some(mark) = &record.mark {
                self.write_mark(&transaction, mark)?;
            }
            transaction.commit()
        };
        write().map_err(|e| self.ledger.error(e))
    }

    fn write_item(&self, conn: &rusqlite::Connection, item: &DeliveredItem) -> rusqlite::Result<()> {
        conn.prepare_cached(
            "INSERT OR REPLACE INTO item (mirror, row, place, kind, digest, turn, item) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            self.id,
            item.row.get(),
            item.place,
            item.kind,
            item.digest.cast_signed(),
            item.turn.as_str(),
            item.id.as_ref().map(ItemId::as_str),
        ])
        .map(drop)
    }

    fn write_mark(&self, conn: &rusqlite::Connection, mark: &Mark) -> rusqlite::Result<()> {
        match mark.passed {
            Some(Passed::Delivered(trace)) => {
                conn.prepare_cached(
                    "INSERT OR REPLACE INTO row (mirror, row, key, timestamp) VALUES (?1, ?2, ?3, ?4)",
                )?
                .execute((
                    self.id,
                    mark.row.get(),
                    trace.key.cast_signed(),
                    trace.timestamp,
                ))?;
                conn.prepare_cached("DELETE FROM taken_back WHERE mirror = ?1 AND row = ?2")?
                    .execute((self.id, mark.row.get()))?;
            }
            Some(Passed::TakenBack) => {
                conn.prepare_cached("INSERT OR IGNORE INTO taken_back (mirror, row) VALUES (?1, ?2)")?
                    .execute((self.id, mark.row.get()))?;
            }
            None => {}
        }
        let turn = mark.turn.as_ref();
        let closed = i64::try_from(mark.closed_turns).unwrap_or(i64::MAX);
        conn.prepare_cached(
            "UPDATE mirror SET last_row = iif(?3 IS NULL, max(?2, last_row), last_row), \
             partial_row = iif(?3 IS NULL, NULL, ?2), partial_items = ?3, \
             turn = ?4, turn_closed = ?5, closed_turns = ?6 WHERE id = ?1",
        )?
        .execute(params![
            self.id,
            mark.row.get(),
            mark.items,
            turn.map(|turn| turn.id.as_str()),
            turn.is_some_and(|turn| turn.closed),
            closed,
        ])
        .map(drop)
    }

    /// An older copy of the source was put in place, and ids are given anew.
    pub fn rewind(&self, rewind: &Rewind) -> Result<(), StateError> {
        let Rewind { row, session, closed_turns } = rewind;
        for gone in [
            "DELETE FROM row WHERE mirror = ?1 AND row > ?2",
            "DELETE FROM taken_back WHERE mirror = ?1 AND row > ?2",
            "DELETE FROM undone WHERE mirror = ?1 AND last > ?2",
        ] {
            self.execute(gone, (self.id, row.get()))?;
        }
        self.execute(
            "UPDATE mirror SET session = ?2, last_row = ?3, partial_row = NULL, partial_items = NULL, \
             turn = NULL, turn_closed = 0, closed_turns = ?4 WHERE id = ?1",
            (self.id, session.as_str(), row.get(), i64::try_from(*closed_turns).unwrap_or(i64::MAX)),
        )
    }

    /// How the item of this account stands to which the server gave this id; `None` where there is none.
    pub fn standing(&self, id: &ItemId) -> Result<Option<Standing>, StateError> {
        let conn = self.ledger.conn();
        let late: Option<bool> = conn
            .prepare_cached("SELECT late FROM item WHERE mirror = ?1 AND item = ?2")
            .and_then(|mut s| s.query_row((self.id, id.as_str()), |row| row.get(0)).optional())
            .map_err(|e| self.ledger.error(e))?;
        Ok(late.map(|late| if late { Standing::Late } else { Standing::InOrder }))
    }

    /// Whether any item with an id was ever recorded, in its order.
    pub fn has_items(&self) -> Result<bool, StateError> {
        let conn = self.ledger.conn();
        conn.prepare_cached("SELECT 1 FROM item WHERE mirror = ?1 AND item IS NOT NULL AND NOT late LIMIT 1")
            .and_then(|mut s| s.exists([self.id]))
            .map_err(|e| self.ledger.error(e))
    }

    /// Whether the conversation was searched, in vain, for what an earlier ledger had recorded.
    pub fn is_searched(&self) -> Result<bool, StateError> {
        let conn = self.ledger.conn();
        conn.prepare_cached("SELECT searched FROM mirror WHERE id = ?1")
            .and_then(|mut s| s.query_row([self.id], |row| row.get(0)))
            .map_err(|e| self.ledger.error(e))
    }

    /// The conversation was searched in vain.
    pub fn set_searched(&self) -> Result<(), StateError> {
        self.execute("UPDATE mirror SET searched = 1 WHERE id = ?1", [self.id])
    }

    /// The closing edges that are still owed.
    pub fn owed(&self) -> Result<Vec<OwedEdge>, StateError> {
        let conn = self.ledger.conn();
        let list = || -> rusqlite::Result<Vec<OwedEdge>> {
            let mut statement =
                conn.prepare_cached("SELECT turn, failed FROM turn WHERE mirror = ?1 AND status = 'owed'")?;
            let read = |row: &rusqlite::Row<'_>| {
                Ok(OwedEdge { turn: ResponseId::new(row.get::<_, String>(0)?), failed: row.get(1)? })
            };
            statement.query_map([self.id], read)?.collect()
        };
        list().map_err(|e| self.ledger.error(e))
    }

    /// Whether the turn's closing edge was sent.
    pub fn is_settled(&self, turn: &ResponseId) -> Result<bool, StateError> {
        let conn = self.ledger.conn();
        conn.prepare_cached("SELECT 1 FROM turn WHERE mirror = ?1 AND turn = ?2")
            .and_then(|mut s| s.query_row((self.id, turn.as_str()), |_| Ok(())).optional())
            .map(|found| found.is_some())
            .map_err(|e| self.ledger.error(e))
    }

    /// The title that the conversation was last given.
    pub fn title(&self) -> Result<Option<String>, StateError> {
        let conn = self.ledger.conn();
        conn.prepare_cached("SELECT title FROM mirror WHERE id = ?1")
            .and_then(|mut s| s.query_row([self.id], |row| row.get(0)))
            .map_err(|e| self.ledger.error(e))
    }

    /// Whether an item of the turn was refused for good.
    pub fn has_dead_letter(&self, turn: &ResponseId) -> Result<bool, StateError> {
        let conn = self.ledger.conn();
        conn.prepare_cached("SELECT 1 FROM dead_letter WHERE mirror = ?1 AND turn = ?2 LIMIT 1")
            .and_then(|mut s| s.query_row((self.id, turn.as_str()), |_| Ok(())).optional())
            .map(|found| found.is_some())
            .map_err(|e| self.ledger.error(e))
    }
}
