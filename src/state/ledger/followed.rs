//! Which conversation shows which session, looked up beside a running mirror.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::FILE;
use crate::ids::{ConversationId, HermesSessionId};
use crate::state::StateError;

/// A session, and the conversation that shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// The session that was followed last.
    pub session: HermesSessionId,
    /// The server's address.
    pub server: String,
    /// The conversation there.
    pub conversation: ConversationId,
}

/// What the ledger in `directory` says of the sessions of `source`; nothing where there is no ledger.
pub fn followed(directory: &Path, source: &Path) -> Result<Vec<Followed>, StateError> {
    let path = directory.join(FILE);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let look = || -> rusqlite::Result<Vec<Followed>> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(&path, flags)?;
        conn.busy_timeout(Duration::from_secs(5))?;
        // A ledger that is being made may have no table yet.
        if !conn.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'mirror'")?.exists([])? {
            return Ok(Vec::new());
        }
        let mut statement = conn.prepare(
            "SELECT session, server, conversation FROM mirror WHERE source = ?1 AND session IS NOT NULL ORDER BY id",
        )?;
        let decode = |row: &rusqlite::Row<'_>| {
            Ok(Followed {
                session: HermesSessionId::new(row.get::<_, String>(0)?),
                server: row.get(1)?,
                conversation: ConversationId::new(row.get::<_, String>(2)?),
            })
        };
        statement.query_map([source.to_string_lossy()], decode)?.collect()
    };
    look().map_err(|cause| StateError::Ledger { path: path.clone(), cause })
}
