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
    /// What it is made for.
    pub sighting: Sighting,
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

    /// One is to be made for what was sighted. One that was to be made before stays as it was.
    pub fn begin(&self, sighting: &Sighting) -> Result<(), StateError> {
        let Sighting { purpose, binding: Binding { session, resume }, started_at } = sighting;
        let conn = self.ledger.conn();
        conn.prepare_cached(
            "INSERT OR IGNORE INTO made (server, source, purpose, session, after, started_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )
        .and_then(|mut s| {
            s.execute((&self.server, &self.source, purpose, session.as_str(), resume.last.get(), started_at))
        })
        .map(drop)
        .map_err(|e| self.ledger.error(e))
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
    let [.., purpose] = key;
    let read = |row: &rusqlite::Row<'_>| -> rusqlite::Result<Making> {
        let last = MessageId::new(row.get(1)?);
        let resume = Resume { last, begins: last != MessageId::ZERO, ..Resume::default() };
        let binding = Binding { session: HermesSessionId::new(row.get::<_, String>(0)?), resume };
        let sighting = Sighting { purpose: purpose.to_owned(), binding, started_at: row.get(2)? };
        let conversation = row.get::<_, Option<String>>(3)?.map(ConversationId::new);
        Ok(Making { sighting, conversation })
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
    use super::*;

    #[test]
    fn what_was_to_be_made_first_is_made_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (ledger, _) = Ledger::open(dir.path()).unwrap();
        let made = Made::new(&ledger, "http://h/", dir.path());
        assert_eq!(made.find("p").unwrap(), None);
        let sighting = |session: &str, last| Sighting {
            purpose: "p".to_owned(),
            binding: Binding {
                session: HermesSessionId::new(session),
                resume: Resume { last: MessageId::new(last), begins: last != 0, ..Resume::default() },
            },
            started_at: 5.5,
        };
        made.begin(&sighting("first", 7)).unwrap();
        made.begin(&sighting("second", 0)).unwrap();
        let begun = Making { sighting: sighting("first", 7), conversation: None };
        assert_eq!(made.find("p").unwrap(), Some(begun.clone()));
        let conversation = ConversationId::new("c");
        made.finish("p", &conversation).unwrap();
        let again = Made::new(&ledger, "http://h", dir.path());
        let done = Making { conversation: Some(conversation), ..begun };
        assert_eq!(again.find("p").unwrap(), Some(done.clone()));
        assert_eq!(Made::look(dir.path(), "http://h", dir.path(), "p").unwrap(), Some(done));
        assert_eq!(Made::new(&ledger, "http://other", dir.path()).find("p").unwrap(), None);
    }
}
