//! What Hermes writes down beside the messages: a session's name and end, and which sessions are being compacted.

use super::connection::{Open, SourceError};
use super::sessions::ENDED_BY_COMPACTION;
use crate::ids::HermesSessionId;

/// A row of `compression_locks` (from 0.17): Hermes holds it for as long as it compacts a session.
#[derive(Clone, Debug, PartialEq)]
pub struct CompressionLock {
    /// The session. A fork compaction holds the lock of the session it ends until its child has its rows.
    pub session: HermesSessionId,
    /// Since when, in s since the epoch: what tells one compaction from the next.
    pub acquired_at: f64,
    /// Until when, in s since the epoch, it counts; a compaction that goes on renews it.
    pub expires_at: f64,
}

/// What a session is called, and whether it was ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    /// The session.
    pub session: HermesSessionId,
    /// Its name, unless Hermes merely cut it from the first message while it waits for a better one (0.20).
    pub title: Option<String>,
    /// When it was ended, in s since the epoch, by something else than a compaction, which goes on in a child. No
    /// proof that nobody writes to it any more (facts/hermes.md 1.11).
    pub ended_at: Option<f64>,
    /// Whether it was ended by anything, a compaction included.
    pub is_over: bool,
}

impl Open {
    /// Every compaction that is under way in the database; none where this version does not say.
    pub fn compression_locks(&self) -> Result<Vec<CompressionLock>, SourceError> {
        const COLUMNS: &[(&str, &str)] = &[("session_id", "''"), ("acquired_at", "0"), ("expires_at", "0")];
        let run = || -> rusqlite::Result<Vec<CompressionLock>> {
            let select = self.schema().select("compression_locks", COLUMNS);
            let mut statement =
                self.conn().prepare_cached(&format!("SELECT {select} FROM compression_locks"))?;
            let locks = statement.query_map([], |row| {
                Ok(CompressionLock {
                    session: HermesSessionId::new(row.get::<_, String>(0)?),
                    acquired_at: row.get(1)?,
                    expires_at: row.get(2)?,
                })
            })?;
            locks.collect()
        };
        if !self.schema().has("compression_locks.session_id") {
            return Ok(Vec::new());
        }
        run().map_err(|e| self.error(e))
    }

    /// The labels of these sessions, in no order; none for a session that is not there.
    pub fn labels(&self, sessions: &[HermesSessionId]) -> Result<Vec<Label>, SourceError> {
        const COLUMNS: &[(&str, &str)] = &[
            ("id", "''"),
            ("title", "NULL"),
            ("title_source", "NULL"),
            ("ended_at", "NULL"),
            ("end_reason", "NULL"),
        ];
        let Some(last) = sessions.last() else { return Ok(Vec::new()) };
        let run = || -> rusqlite::Result<Vec<Label>> {
            let select = self.schema().select("sessions", COLUMNS);
            // A few sizes of the same statement serve any number of sessions from the cache.
            let places = sessions.len().next_power_of_two();
            let marks = vec!["?"; places].join(",");
            let mut statement = self
                .conn()
                .prepare_cached(&format!("SELECT {select} FROM sessions WHERE id IN ({marks})"))?;
            for place in 0..places {
                statement.raw_bind_parameter(place + 1, sessions.get(place).unwrap_or(last).as_str())?;
            }
            let mut labels = Vec::new();
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next()? {
                let text = |at| row.get::<_, Option<String>>(at);
                let title = text(1)?.filter(|title| !title.trim().is_empty());
                let provisional = text(2)?.as_deref() == Some("derived");
                let (ended_at, reason) = (row.get::<_, Option<f64>>(3)?, text(4)?);
                labels.push(Label {
                    session: HermesSessionId::new(row.get::<_, String>(0)?),
                    title: title.filter(|_| !provisional),
                    is_over: ended_at.is_some() || reason.is_some(),
                    ended_at: ended_at.filter(|_| reason.as_deref() != Some(ENDED_BY_COMPACTION)),
                });
            }
            Ok(labels)
        };
        run().map_err(|e| self.error(e))
    }

    /// What a session with this title is called: where a fork compaction merely numbered its parent's title
    /// (`X` became `X #2`), the conversation goes on under the name it had.
    pub fn name(&self, session: &HermesSessionId, title: &str) -> Result<String, SourceError> {
        let mut name = title.to_owned();
        if unnumbered(title) == title {
            return Ok(name);
        }
        for ancestor in self.ancestors(session)? {
            let older = self.labels(&[ancestor.id])?.pop().and_then(|label| label.title);
            match older {
                Some(older) if unnumbered(&older) == unnumbered(title) => name = older,
                Some(_) => break,
                None => {}
            }
        }
        Ok(name)
    }
}

/// A title without the number that Hermes puts behind one that is taken.
fn unnumbered(title: &str) -> &str {
    match title.rsplit_once(" #") {
        Some((base, number)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => title,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rusqlite::{Connection, OpenFlags};
    use tempfile::TempDir;

    use super::super::Source;
    use super::*;

    const MESSAGES: &str =
        "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT);";
    const SESSIONS: &str =
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, started_at REAL, parent_session_id TEXT,
        title TEXT, title_source TEXT, ended_at REAL, end_reason TEXT);";

    fn source(sql: &str) -> (TempDir, Source) {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("state.db");
        let conn = Connection::open_with_flags(&path, OpenFlags::default()).expect("create");
        conn.execute_batch(&format!("{MESSAGES}{sql}")).expect("sql");
        (dir, Source::new(path, Duration::ZERO))
    }

    fn id(name: &str) -> HermesSessionId {
        HermesSessionId::new(name)
    }

    #[test]
    fn a_title_cut_from_the_first_message_is_no_name_yet() {
        let sql = format!(
            "{SESSIONS}
             INSERT INTO sessions VALUES ('a', 1, NULL, 'A', 'derived', NULL, NULL), ('b', 1, NULL, 'B', 'llm', NULL, NULL),
                ('c', 1, NULL, 'C', NULL, NULL, NULL), ('d', 1, NULL, ' ', NULL, NULL, NULL);"
        );
        let (_dir, mut source) = source(&sql);
        let mut labels =
            source.open().expect("open").labels(&["a", "b", "c", "d", "none"].map(id)).expect("labels");
        labels.sort_by(|a, b| a.session.cmp(&b.session));
        let titles: Vec<_> = labels.iter().map(|label| label.title.as_deref()).collect();
        assert_eq!(titles, [None, Some("B"), Some("C"), None]);
    }

    #[test]
    fn a_session_that_a_compaction_ended_has_not_ended() {
        let sql = format!(
            "{SESSIONS}
             INSERT INTO sessions VALUES ('a', 1, NULL, NULL, NULL, 5, 'compression'), ('b', 1, NULL, NULL, NULL, 5, 'cli_close'),
                ('c', 1, NULL, NULL, NULL, NULL, NULL);"
        );
        let (_dir, mut source) = source(&sql);
        let mut labels = source.open().expect("open").labels(&["a", "b", "c"].map(id)).expect("labels");
        labels.sort_by(|a, b| a.session.cmp(&b.session));
        assert_eq!(labels.iter().map(|label| label.ended_at).collect::<Vec<_>>(), [None, Some(5.0), None]);
    }

    #[test]
    fn a_version_without_titles_ends_or_locks_says_nothing_of_them() {
        let (_dir, mut source) = source(
            "CREATE TABLE sessions (id TEXT PRIMARY KEY, started_at REAL); INSERT INTO sessions VALUES ('a', 1);",
        );
        let open = source.open().expect("open");
        let expected = [Label { session: id("a"), title: None, ended_at: None, is_over: false }];
        assert_eq!(open.labels(&[id("a")]).expect("labels"), expected);
        assert_eq!(open.compression_locks().expect("locks"), []);
    }

    #[test]
    fn a_continuation_goes_by_the_name_the_conversation_had() {
        let sql = format!(
            "{SESSIONS}
             INSERT INTO sessions VALUES ('root', 1, NULL, 'X #2', NULL, 5, 'compression'),
                ('child', 2, 'root', 'X #3', NULL, 6, 'compression'), ('tip', 3, 'child', 'X #4', NULL, NULL, NULL),
                ('alone', 4, NULL, 'X #5', NULL, NULL, NULL);"
        );
        let (_dir, mut source) = source(&sql);
        let open = source.open().expect("open");
        let name = |session: &str, title: &str| open.name(&id(session), title).expect("a name");
        assert_eq!(name("child", "X #3"), "X #2");
        assert_eq!(name("tip", "X #4"), "X #2");
        assert_eq!(name("tip", "Another"), "Another");
        assert_eq!(name("tip", "Issue #7"), "Issue #7");
        assert_eq!(name("alone", "X #5"), "X #5");
    }
}
