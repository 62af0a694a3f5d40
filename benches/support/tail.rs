//! What the baselines have in common: rows after a cursor, and the events they become.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rusqlite::{Connection, OpenFlags, Row};
use serde_json::{Value, json};

use super::http::Client;
use super::role::Part;
use super::script;

/// The columns that [`StoredRow::read`] wants, in its order.
pub const COLUMNS: &str = "id, role, content, tool_calls, tool_call_id";

/// A row of `messages`.
pub struct StoredRow {
    pub id: i64,
    role: String,
    content: Option<String>,
    tool_calls: Option<String>,
    tool_call_id: Option<String>,
}

impl StoredRow {
    /// From the columns of [`COLUMNS`].
    pub fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            role: row.get(1)?,
            content: row.get(2)?,
            tool_calls: row.get(3)?,
            tool_call_id: row.get(4)?,
        })
    }

    /// The events to post for it, serialised: calls, then prose; or a call's output.
    pub fn events(&self) -> Vec<String> {
        let text = self.content.as_deref().unwrap_or_default().trim();
        match self.role.as_str() {
            "user" if !text.is_empty() => {
                let data = json!({"role": "user", "content": [{"type": "input_text", "text": text}]});
                vec![self.event("message", &data)]
            }
            "assistant" => {
                let mut events: Vec<String> =
                    calls(self.tool_calls.as_deref()).iter().map(|call| self.call(call)).collect();
                if !text.is_empty() {
                    let content = json!([{"type": "output_text", "text": text}]);
                    let data = json!({"role": "assistant", "agent": "hermes", "content": content});
                    events.push(self.event("message", &data));
                }
                events
            }
            "tool" => vec![
                self.event("function_call_output", &json!({"call_id": self.tool_call_id, "output": text})),
            ],
            _ => Vec::new(),
        }
    }

    fn call(&self, call: &Value) -> String {
        let part = |pointer| call.pointer(pointer).unwrap_or(&Value::Null);
        let data = json!({
            "agent": "hermes", "name": part("/function/name"), "arguments": part("/function/arguments"),
            "call_id": part("/call_id"),
        });
        self.event("function_call", &data)
    }

    fn event(&self, item_type: &str, item_data: &Value) -> String {
        let response_id = format!("hermes:{}", self.id);
        let data = json!({"item_type": item_type, "item_data": item_data, "response_id": response_id});
        json!({"type": "external_conversation_item", "data": data}).to_string()
    }
}

/// The list in a `tool_calls` column; empty where there is none.
pub fn calls(column: Option<&str>) -> Vec<Value> {
    column
        .filter(|text| !text.is_empty())
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// Opens read-only; never creates anything.
pub fn open_read_only(db: &Path) -> Result<Connection> {
    let conn =
        Connection::open_with_flags(db, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
            .with_context(|| format!("open {}", db.display()))?;
    conn.busy_timeout(Duration::from_secs(5))?;
    Ok(conn)
}

/// A kept connection, a kept statement, a kept socket: the cheapest way from a row to a POST.
pub struct Tail {
    pub conn: Connection,
    client: Client,
    session: String,
    cursor: i64,
}

impl Tail {
    /// Connects to both ends.
    pub fn open(part: &Part) -> Result<Self> {
        let conn = open_read_only(&part.db)?;
        let client = Client::connect(part.sink, &script::conversation(0))?;
        Ok(Self { conn, client, session: script::session(0), cursor: i64::from(part.cursor) })
    }

    /// Posts every row past the cursor. The statement has ended before the first POST.
    pub fn drain(&mut self) -> Result<()> {
        let sql = format!("SELECT {COLUMNS} FROM messages WHERE id > ?1 AND +session_id = ?2 ORDER BY id");
        let rows: Vec<StoredRow> = self
            .conn
            .prepare_cached(&sql)?
            .query_map((self.cursor, &self.session), StoredRow::read)?
            .collect::<rusqlite::Result<_>>()?;
        for row in rows {
            for event in row.events() {
                self.client.post_event(&event)?;
            }
            self.cursor = row.id;
        }
        Ok(())
    }
}
