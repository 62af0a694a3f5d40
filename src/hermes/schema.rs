//! What the tables of a state.db have, found by asking them rather than by a version number.
//!
//! Hermes adds columns at its own start, also while a mirror runs (facts by version: 0.13.0 has no `cwd`,
//! `active`, `compacted`, `observed`; 0.20.1 adds `display_kind`). A column that is absent reads as its
//! default, and no column is named that was not found.

use std::collections::BTreeSet;

use rusqlite::Connection;

use super::rows;

/// Column names of the tables the mirror reads, and the schema cookie they were read at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    messages: BTreeSet<String>,
    sessions: BTreeSet<String>,
    model_usage: BTreeSet<String>,
    locks: BTreeSet<String>,
    counts_ids: bool,
    /// Worked out once, as these are asked for at every look.
    gaps: Vec<Gap>,
    row_columns: String,
    cookie: i64,
}

/// A column the mirror can do without, and what it does then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// `table.column`
    pub column: &'static str,
    /// What can't be told without it.
    pub consequence: &'static str,
}

const OPTIONAL: &[Gap] = &[
    Gap { column: "sessions.cwd", consequence: "sessions are found by start time alone" },
    Gap {
        column: "sessions.parent_session_id",
        consequence: "a compaction's continuation cannot be followed",
    },
    Gap { column: "sessions.end_reason", consequence: "a compaction's continuation cannot be followed" },
    Gap {
        column: "sessions.model_config",
        consequence: "branches and sub-agents are told apart by source alone",
    },
    Gap { column: "sessions.input_tokens", consequence: "token counts are not shown" },
    Gap { column: "messages.active", consequence: "rows taken back by /undo cannot be told" },
    Gap {
        column: "messages.compacted",
        consequence: "in-place compactions are known by their summary alone",
    },
    Gap { column: "messages.timestamp", consequence: "re-inserted rows cannot be told from new ones" },
    Gap { column: "messages.reasoning", consequence: "reasoning is not shown" },
    Gap { column: "compression_locks.session_id", consequence: "compactions are shown when they are done" },
    Gap { column: "session_model_usage.model", consequence: "usage is not told by model" },
];

impl Schema {
    pub(super) fn read(conn: &Connection) -> rusqlite::Result<Self> {
        let cookie = Self::cookie(conn)?;
        let columns = |table: &str| -> rusqlite::Result<BTreeSet<String>> {
            let mut statement = conn.prepare("SELECT name FROM pragma_table_info(?1)")?;
            statement.query_map([table], |row| row.get(0))?.collect()
        };
        let mut schema = Self {
            messages: columns("messages")?,
            sessions: columns("sessions")?,
            model_usage: columns("session_model_usage")?,
            locks: columns("compression_locks")?,
            counts_ids: !columns("sqlite_sequence")?.is_empty(),
            gaps: Vec::new(),
            row_columns: String::new(),
            cookie,
        };
        schema.gaps = OPTIONAL.iter().copied().filter(|gap| !schema.has(gap.column)).collect();
        schema.row_columns = schema.select("messages", rows::COLUMNS);
        Ok(schema)
    }

    /// SQLite's own count of schema changes.
    pub(super) fn cookie(conn: &Connection) -> rusqlite::Result<i64> {
        conn.prepare_cached("PRAGMA schema_version")?.query_row([], |r| r.get(0))
    }

    /// Whether ids are never given out twice, and the highest one is on record.
    pub(super) fn counts_ids(&self) -> bool {
        self.counts_ids
    }

    pub(super) fn cookie_read(&self) -> i64 {
        self.cookie
    }

    /// What a mirror can't do without and this database does not have; `None` where it has all.
    #[must_use]
    pub fn lacks(&self) -> Option<String> {
        for (table, columns, needed) in [
            ("messages", &self.messages, &["id", "session_id", "role", "content"][..]),
            ("sessions", &self.sessions, &["id", "started_at"][..]),
        ] {
            if columns.is_empty() {
                return Some(format!("no table `{table}`"));
            }
            if let Some(column) = needed.iter().find(|c| !columns.contains(**c)) {
                return Some(format!("no column `{table}.{column}`"));
            }
        }
        None
    }

    /// What this version of Hermes can't tell.
    #[must_use]
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Whether there is a column, named as `table.column`.
    #[must_use]
    pub fn has(&self, column: &str) -> bool {
        match column.split_once('.') {
            Some(("messages", name)) => self.messages.contains(name),
            Some(("sessions", name)) => self.sessions.contains(name),
            Some(("session_model_usage", name)) => self.model_usage.contains(name),
            Some(("compression_locks", name)) => self.locks.contains(name),
            _ => false,
        }
    }

    /// The select list over `messages` that [`rows::decode`] reads.
    pub(super) fn row_columns(&self) -> &str {
        &self.row_columns
    }

    /// A select list over `table`: each column by its name, or its default where the table lacks it.
    pub(super) fn select(&self, table: &str, columns: &[(&str, &str)]) -> String {
        let list = columns.iter().map(|(name, default)| {
            if self.has(&format!("{table}.{name}")) {
                format!("{table}.{name}")
            } else {
                format!("{default} AS {name}")
            }
        });
        list.collect::<Vec<_>>().join(", ")
    }
}
