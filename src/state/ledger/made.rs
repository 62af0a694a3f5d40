//! The conversations that mirrors have made, and those that they are about to make.
//!
//! What is to be made is written down before the server is asked for it, so that a start after a kill goes on with the
//! same session, from the same row.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::{FILE, Ledger};
use crate::event::{Binding, Resume, Sighting};
use crate::ids::{ConversationId, HermesSessionId, MessageId};
use crate::state::StateError;

/// What begins the purpose of a conversation that is made for a session by name.
const OF_SESSION: &str = "session ";

/// What a conversation is made for that shows one session, whatever its place in the configuration.
#[must_use]
pub fn of_session(session: &HermesSessionId) -> String {
    format!("{OF_SESSION}{session}")
}

/// The session that a conversation of such a purpose shows.
#[must_use]
pub fn session_of(purpose: &str) -> Option<&str> {
    purpose.strip_prefix(OF_SESSION)
}

/// A conversation that was made for a session, and how far it had come when the mirror ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Left {
    /// The session that it was made for.
    pub session: HermesSessionId,
    /// The session that was followed last, and the last row that was delivered of it; `None` where something is owed
    /// beside its rows.
    pub at: Option<(HermesSessionId, MessageId)>,
}

/// The conversations that are made on one server for the sessions of one database.
#[derive(Clone, Debug)]
pub struct Made {
    ledger: Ledger,
    server: String,
    source: String,
}

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Making {
    /// The session that it is made for, and where it begins.
    pub binding: Binding,
    /// When that session began, in s since the epoch.
    pub started_at: f64,
    /// Its id, once the server has said it.
    pub conversation: Option<ConversationId>,
}

impl Made {
    /// Those of `server` and `source`.
    #[must_use]
    pub fn new(ledger: &Ledger, server: &str, source: &Path) -> Self {
        let server = server.trim_end_matches('/').to_owned();
        Self { ledger: ledger.clone(), server, source: source.to_string_lossy().into_owned() }
    }

    /// The one that is made for `purpose`.
    pub fn find(&self, purpose: &str) -> Result<Option<Making>, StateError> {
        select(&self.ledger.conn(), [&self.server, &self.source, purpose]).map_err(|e| self.ledger.error(e))
    }

    /// The same of the ledger in `directory`, beside a mirror that has it open; `None` also where there is none.
    pub fn look(
        directory: &Path,
        server: &str,
        source: &Path,
        purpose: &str,
    ) -> Result<Option<Making>, StateError> {
        let path = directory.join(FILE);
        if !path.exists() {
            return Ok(None);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let look = || -> rusqlite::Result<Option<Making>> {
            let conn = Connection::open_with_flags(&path, flags)?;
            conn.busy_timeout(Duration::from_secs(5))?;
            // An older program's ledger has no such table.
            if !conn.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'made'")?.exists([])? {
                return Ok(None);
            }
            select(&conn, [server.trim_end_matches('/'), &source.to_string_lossy(), purpose])
        };
        look().map_err(|cause| StateError::Ledger { path: path.clone(), cause })
    }

    /// Conversations are to be made for what was sighted; one that was to be made before stays as it was. `looked`: the
    /// row up to which sessions were looked for.
    pub fn note(&self, sightings: &[Sighting], looked: Option<MessageId>) -> Result<(), StateError> {
        let write = || -> rusqlite::Result<()> {
            let conn = self.ledger.conn();
            let transaction = conn.unchecked_transaction()?;
            for Sighting { purpose, binding: Binding { session, resume }, started_at, mirror: _ } in sightings
            {
                transaction
                    .prepare_cached(
                        "INSERT OR IGNORE INTO made (server, source, purpose, session, after, started_at) \
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                    )?
                    .execute((
                        &self.server,
                        &self.source,
                        purpose,
                        session.as_str(),
                        resume.last.get(),
                        started_at,
                    ))?;
            }
            if let Some(looked) = looked {
                transaction
                    .prepare_cached(
                        "INSERT OR REPLACE INTO looked (server, source, row) VALUES (?1, ?2, ?3)",
                    )?
                    .execute((&self.server, &self.source, looked.get()))?;
            }
            transaction.commit()
        };
        write().map_err(|e| self.ledger.error(e))
    }

    /// The row up to which sessions were looked for; `None` where nobody has.
    pub fn looked(&self) -> Result<Option<MessageId>, StateError> {
        let conn = self.ledger.conn();
        conn.prepare_cached("SELECT row FROM looked WHERE server = ?1 AND source = ?2")
            .and_then(|mut s| s.query_row((&self.server, &self.source), |row| row.get(0)).optional())
            .map(|row| row.map(MessageId::new))
            .map_err(|e| self.ledger.error(e))
    }

    /// Those that were made for sessions by name, with the session that was followed last and the last row that was
    /// delivered of it; without these where something is owed beside its rows.
    pub fn left(&self) -> Result<Vec<Left>, StateError> {
        let conn = self.ledger.conn();
        let list = || -> rusqlite::Result<Vec<Left>> {
            let mut statement = conn.prepare_cached(
                "SELECT substr(purpose, length(?3) + 1), mirror.session, mirror.last_row, \
                        mirror.session IS NULL OR partial_row IS NOT NULL OR turn IS NOT NULL OR EXISTS \
                        (SELECT 1 FROM turn WHERE turn.mirror = mirror.id AND status = 'owed') \
                 FROM made LEFT JOIN mirror USING (server, source, conversation) \
                 WHERE server = ?1 AND source = ?2 AND substr(purpose, 1, length(?3)) = ?3",
            )?;
            let rows = statement.query_map((&self.server, &self.source, OF_SESSION), |row| {
                let session = HermesSessionId::new(row.get::<_, String>(0)?);
                if row.get(3)? {
                    return Ok(Left { session, at: None });
                }
                let followed = HermesSessionId::new(row.get::<_, String>(1)?);
                Ok(Left { session, at: Some((followed, MessageId::new(row.get(2)?))) })
            })?;
            rows.collect()
        };
        list().map_err(|e| self.ledger.error(e))
    }

    /// The server has made it.
    pub fn finish(&self, purpose: &str, conversation: &ConversationId) -> Result<(), StateError> {
        let conn = self.ledger.conn();
        conn.prepare_cached(
            "UPDATE made SET conversation = ?4 WHERE server = ?1 AND source = ?2 AND purpose = ?3",
        )
        .and_then(|mut s| s.execute((&self.server, &self.source, purpose, conversation.as_str())))
        .map(drop)
        .map_err(|e| self.ledger.error(e))
    }
}

fn select(conn: &Connection, key: [&str; 3]) -> rusqlite::Result<Option<Making>> {
    let read = |row: &rusqlite::Row<'_>| -> rusqlite::Result<Making> {
        let last = MessageId::new(row.get(1)?);
        let resume = Resume { last, begins: last != MessageId::ZERO, ..Resume::default() };
        let binding = Binding { session: HermesSessionId::new(row.get::<_, String>(0)?), resume };
        let conversation = row.get::<_, Option<String>>(3)?.map(ConversationId::new);
        Ok(Making { binding, started_at: row.get(2)?, conversation })
    };
    conn.prepare_cached(
        "SELECT session, after, started_at, conversation FROM made \
         WHERE server = ?1 AND source = ?2 AND purpose = ?3",
    )?
    .query_row(key, read)
    .optional()
}

#[cfg(test)]
mod tests {
    use super::super::{Account, Key};
    use super::*;

    #[test]
    fn what_was_to_be_made_first_is_made_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (ledger, _) = Ledger::open(dir.path()).unwrap();
        let made = Made::new(&ledger, "http://h/", dir.path());
        assert_eq!(made.find("p").unwrap(), None);
        let sighting = |session: &str, last| Sighting {
            mirror: 0,
            purpose: "p".to_owned(),
            binding: Binding {
                session: HermesSessionId::new(session),
                resume: Resume { last: MessageId::new(last), begins: last != 0, ..Resume::default() },
            },
            started_at: 5.5,
        };
        let first = sighting("first", 7);
        made.note(std::slice::from_ref(&first), None).unwrap();
        made.note(&[sighting("second", 0)], None).unwrap();
        let begun = Making { binding: first.binding, started_at: 5.5, conversation: None };
        assert_eq!(made.find("p").unwrap(), Some(begun.clone()));
        let conversation = ConversationId::new("c");
        made.finish("p", &conversation).unwrap();
        let again = Made::new(&ledger, "http://h", dir.path());
        let done = Making { conversation: Some(conversation), ..begun };
        assert_eq!(again.find("p").unwrap(), Some(done.clone()));
        assert_eq!(Made::look(dir.path(), "http://h", dir.path(), "p").unwrap(), Some(done));
        assert_eq!(Made::new(&ledger, "http://other", dir.path()).find("p").unwrap(), None);
    }

    #[test]
    fn what_was_left_says_how_far_it_had_come() {
        let dir = tempfile::tempdir().unwrap();
        let (ledger, _) = Ledger::open(dir.path()).unwrap();
        let made = Made::new(&ledger, "http://h", dir.path());
        assert_eq!(made.looked().unwrap(), None);
        let session = HermesSessionId::new("s");
        let sighting = Sighting {
            mirror: 0,
            purpose: of_session(&session),
            binding: Binding { session: session.clone(), resume: Resume::default() },
            started_at: 1.0,
        };
        made.note(std::slice::from_ref(&sighting), Some(MessageId::new(9))).unwrap();
        assert_eq!(made.looked().unwrap(), Some(MessageId::new(9)));
        assert_eq!(made.left().unwrap(), [Left { session: session.clone(), at: None }]);
        let conversation = ConversationId::new("c");
        made.finish(&sighting.purpose, &conversation).unwrap();
        let key = Key { server: "http://h", conversation: &conversation, source: dir.path() };
        let account = Account::open(&ledger, key).unwrap();
        assert_eq!(made.left().unwrap(), [Left { session: session.clone(), at: None }]);
        let child = HermesSessionId::new("child");
        let resume = Resume { last: MessageId::new(7), ..Resume::default() };
        account.bind(&Binding { session: child.clone(), resume }).unwrap();
        let at = Some((child, MessageId::new(7)));
        assert_eq!(made.left().unwrap(), [Left { session, at }]);
    }
}
