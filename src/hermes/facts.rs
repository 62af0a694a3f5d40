//! What a person wants to know of a database before it is mirrored.

use super::connection::{Open, SourceError};

/// A database in a few words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Hermes's own count of schema changes, where it keeps one. For people: what the tables have is found by
    /// asking them.
    pub schema_version: Option<i64>,
    /// SQLite's journal mode; Hermes sets `wal`.
    pub journal_mode: String,
    /// How many sessions there are, of every kind.
    pub sessions: u64,
}

impl Open {
    /// Asks for the facts.
    pub fn facts(&self) -> Result<Facts, SourceError> {
        let run = || -> rusqlite::Result<Facts> {
            let conn = self.conn();
            let versioned: bool = conn.query_row(
                "SELECT EXISTS (SELECT 1 FROM pragma_table_info('schema_version') WHERE name = 'version')",
                [],
                |row| row.get(0),
            )?;
            let schema_version = if versioned {
                conn.query_row("SELECT max(version) FROM schema_version", [], |row| row.get(0))?
            } else {
                None
            };
            Ok(Facts {
                schema_version,
                journal_mode: conn.query_row("PRAGMA journal_mode", [], |row| row.get(0))?,
                sessions: conn
                    .query_row("SELECT count(*) FROM sessions", [], |row| row.get::<_, i64>(0))?
                    .unsigned_abs(),
            })
        };
        run().map_err(|e| self.error(e))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rusqlite::{Connection, OpenFlags};

    use super::super::Source;
    use super::*;

    fn facts(sql: &str) -> Facts {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("state.db");
        let conn = Connection::open_with_flags(&path, OpenFlags::default()).expect("create");
        conn.execute_batch(
            "CREATE TABLE sessions (id TEXT PRIMARY KEY, started_at REAL);
             CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT);",
        )
        .expect("tables");
        conn.execute_batch(sql).expect("sql");
        Source::new(path, Duration::ZERO).open().expect("open").facts().expect("facts")
    }

    #[test]
    fn the_newest_schema_version_counts() {
        let sql =
            "CREATE TABLE schema_version (version INTEGER); INSERT INTO schema_version VALUES (11), (22);
                   INSERT INTO sessions VALUES ('a', 1), ('b', 2)";
        let expected = Facts { schema_version: Some(22), journal_mode: "delete".to_owned(), sessions: 2 };
        assert_eq!(facts(sql), expected);
    }

    #[test]
    fn a_database_without_a_version_still_has_facts() {
        assert_eq!(facts("").schema_version, None);
        assert_eq!(facts("CREATE TABLE schema_version (version INTEGER)").schema_version, None);
        assert_eq!(facts("CREATE TABLE schema_version (other TEXT)").schema_version, None);
    }
}
