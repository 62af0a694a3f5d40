//! A run of the real Hermes, recorded as `scripts/record` does and played again: the same changes of the same rows, in the
//! transactions in which they were seen.

use std::path::{Path, PathBuf};

use rusqlite::types::Value as Sql;
use rusqlite::{Transaction, params_from_iter};
use serde_json::{Map, Value};

use super::hermes_db::{HermesDb, Version};

/// A run.
pub struct Recording {
    pub version: Version,
    /// The sessions that its terminal's person sees, the first one first.
    pub sessions: Vec<String>,
    pub steps: Vec<Step>,
}

/// What one look found changed.
#[derive(Clone)]
pub enum Step {
    /// Rows were written.
    Commit(Value),
    /// The database was backed up.
    BackUp,
    /// The backup was written over the database.
    Restore,
}

impl Recording {
    /// Reads `tests/data/recorded/{name}.jsonl`; `workspace` is where the terminal was started.
    pub fn load(name: &str, workspace: &Path) -> Self {
        let text = data(&format!("{name}.jsonl"));
        let text = text.replace("{work}", &workspace.display().to_string());
        let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
        let head = lines.next().expect("a first line");
        let version = match head["hermes"].as_str().unwrap() {
            "0.13.0" => Version::V13,
            "0.18.2" => Version::V18,
            "0.19.0" => Version::V19,
            "0.20.1" => Version::V20,
            other => panic!("recorded with Hermes {other}"),
        };
        let sessions = head["follows"].as_array().unwrap().iter();
        let sessions = sessions.map(|session| session.as_str().unwrap().to_owned()).collect();
        let steps = lines.map(|line| match line["do"].as_str() {
            Some("back up") => Step::BackUp,
            Some("restore") => Step::Restore,
            _ => Step::Commit(line),
        });
        Self { version, sessions, steps: steps.collect() }
    }

    /// What the conversation shows of it: `tests/data/recorded/{name}.shown`, a line each, with `\n` and `\\` in it.
    pub fn shown(name: &str) -> Vec<String> {
        data(&format!("{name}.shown")).lines().map(unescaped).collect()
    }

    /// The same where a mirror that starts after the fact shows something else.
    pub fn shown_late(name: &str) -> Option<Vec<String>> {
        let late = format!("{name}.late");
        path(&format!("{late}.shown")).exists().then(|| Self::shown(&late))
    }

    /// The newest row of the sessions that are followed which a step brings.
    pub fn newest(&self, step: &Step) -> Option<i64> {
        let Step::Commit(changes) = step else { return None };
        let rows = changes["messages"].as_array()?.iter();
        let followed = rows.filter(|row| self.sessions.iter().any(|id| row["session_id"] == id.as_str()));
        followed.filter_map(|row| row["id"].as_i64()).max()
    }
}

/// Commits what a step changed.
pub fn commit(db: &mut HermesDb, changes: &Value) {
    let list = |name: &str| changes[name].as_array().cloned().unwrap_or_default();
    db.commit(|write| {
        for session in list("sessions") {
            put(write, "sessions", session.as_object().unwrap());
        }
        for id in list("gone") {
            write.execute("DELETE FROM messages WHERE id = ?1", [id.as_i64()]).unwrap();
        }
        for message in list("messages") {
            put(write, "messages", message.as_object().unwrap());
        }
    });
}

/// Changes the row of this `id`, or makes it.
fn put(write: &Transaction<'_>, table: &str, row: &Map<String, Value>) {
    let values = || row.values().map(sql);
    let set: Vec<String> = row.keys().map(|name| format!("{name} = ?")).collect();
    let update = format!("UPDATE {table} SET {} WHERE id = ?", set.join(", "));
    let found = write.execute(&update, params_from_iter(values().chain([sql(&row["id"])]))).unwrap();
    if found == 0 {
        let names: Vec<&str> = row.keys().map(String::as_str).collect();
        let marks = vec!["?"; names.len()].join(", ");
        let insert = format!("INSERT INTO {table} ({}) VALUES ({marks})", names.join(", "));
        write.execute(&insert, params_from_iter(values())).unwrap();
    }
}

fn sql(value: &Value) -> Sql {
    match value {
        Value::Null => Sql::Null,
        Value::String(text) => Sql::Text(text.clone()),
        Value::Number(number) => {
            number.as_i64().map_or_else(|| Sql::Real(number.as_f64().unwrap()), Sql::Integer)
        }
        other => panic!("no column holds {other}"),
    }
}

#[allow(clippy::disallowed_methods, reason = "a file of the tests' own, never a database")]
fn data(name: &str) -> String {
    let path = path(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn unescaped(line: &str) -> String {
    let parts = line.split(r"\\").map(|part| part.replace(r"\n", "\n"));
    parts.collect::<Vec<_>>().join(r"\")
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/recorded").join(name)
}
