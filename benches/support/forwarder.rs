//! Baseline: the polling forwarder that this program replaces, as its behaviour is known.
//!
//! Every 0.4 s, on a connection opened for each query and closed after it: look at every sibling's claim, read
//! `session_id = ? AND id > ? AND active = 1`, post what came one by one and write the state file after each, ask
//! whether the session was compacted, look for the configuration that names the model, write the state file again,
//! count all completed turns of the session from its first row, and post `idle` when there are more than the status
//! file says. It is kinder than the original: no interpreter, no thread pool.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, thread};

use anyhow::Result;
use serde_json::{Value, json};

use super::hermes_db::now;
use super::http::Client;
use super::role::Part;
use super::script;
use super::tail::{self, COLUMNS, StoredRow};

const EVERY: Duration = Duration::from_millis(400);
const CLAIM: &str = "hermes_forwarder.json";
const STATUS: &str = "hermes_status_forwarder.json";
/// A claim not renewed for this long belongs to nobody.
const CLAIM_FRESH_MS: u64 = 30_000;
/// A session may be this much older than the launch.
const SKEW_S: f64 = 10.0;

/// Runs until its input closes.
pub fn play(part: &Part) -> Result<()> {
    let mut forwarder = Forwarder::new(part)?;
    loop {
        forwarder.poll()?;
        thread::sleep(EVERY);
    }
}

struct Forwarder<'a> {
    part: &'a Part,
    bridge: PathBuf,
    client: Client,
    session: Option<String>,
    last_id: i64,
    announced: bool,
}

impl<'a> Forwarder<'a> {
    fn new(part: &'a Part) -> Result<Self> {
        let bridge = part.bridge(0);
        let state = read_json(&bridge.join(CLAIM));
        let session = state.get("hermes_session_id").and_then(Value::as_str).map(str::to_owned);
        let last_id = state.get("last_id").and_then(Value::as_i64).unwrap_or(0);
        let client = Client::connect(part.sink, &script::conversation(0))?;
        Ok(Self { part, bridge, client, session, last_id, announced: false })
    }

    fn poll(&mut self) -> Result<()> {
        if self.session.is_none() {
            self.session = self.discover()?.filter(|found| !self.claimed_by_other(found));
            if self.session.is_some() {
                self.write_state()?;
            }
        }
        let Some(session) = self.session.clone() else { return Ok(()) };
        if !self.announced {
            self.client.patch(&json!({"external_session_id": session}).to_string())?;
            self.announced = true;
        }
        if self.claimed_by_other(&session) {
            self.session = None;
            return Ok(());
        }
        for row in self.new_rows(&session)? {
            self.last_id = row.id;
            for event in row.events() {
                self.client.post_event(&event)?;
                self.write_state()?;
            }
        }
        // No session of the benchmark is ever compacted: what the answer costs is what matters here.
        self.is_compacted(&session)?;
        self.model_is_configured();
        self.write_state()?;
        self.report_turns(&session)
    }

    fn discover(&self) -> Result<Option<String>> {
        let conn = tail::open_read_only(&self.part.db)?;
        let mut statement =
            conn.prepare("SELECT id, cwd FROM sessions WHERE started_at >= ?1 ORDER BY started_at DESC")?;
        let found = statement
            .query_map([self.part.launch - SKEW_S], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<Vec<(String, Option<String>)>>>()?;
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let workspace = real(&self.part.workspace);
        let here = |cwd: &Option<String>| cwd.as_deref().is_some_and(|cwd| real(Path::new(cwd)) == workspace);
        Ok(found.into_iter().find(|(_, cwd)| here(cwd)).map(|(id, _)| id))
    }

    fn claimed_by_other(&self, session: &str) -> bool {
        let Some(siblings) = self.bridge.parent().and_then(|root| fs::read_dir(root).ok()) else {
            return false;
        };
        let now_ms = u64::try_from(now().as_millis()).unwrap_or(u64::MAX);
        siblings.flatten().map(|entry| entry.path()).filter(|path| *path != self.bridge).any(|path| {
            let other = read_json(&path.join(CLAIM));
            let launch = other.get("launch_epoch_s").and_then(Value::as_f64).unwrap_or(0.0);
            let beat = other.get("heartbeat_ms").and_then(Value::as_u64).unwrap_or(0);
            other.get("hermes_session_id").and_then(Value::as_str) == Some(session)
                && now_ms.saturating_sub(beat) <= CLAIM_FRESH_MS
                && (launch, path.as_path()) < (self.part.launch, self.bridge.as_path())
        })
    }

    fn new_rows(&self, session: &str) -> Result<Vec<StoredRow>> {
        let conn = tail::open_read_only(&self.part.db)?;
        let sql = format!(
            "SELECT {COLUMNS} FROM messages WHERE session_id = ?1 AND id > ?2 AND active = 1 ORDER BY id"
        );
        let mut statement = conn.prepare(&sql)?;
        let rows = statement.query_map((session, self.last_id), StoredRow::read)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn is_compacted(&self, session: &str) -> Result<bool> {
        let conn = tail::open_read_only(&self.part.db)?;
        let mut statement =
            conn.prepare("SELECT 1 FROM messages WHERE session_id = ?1 AND compacted = 1 LIMIT 1")?;
        Ok(statement.exists([session])?)
    }

    fn model_is_configured(&self) -> bool {
        let home = std::env::home_dir().unwrap_or_default();
        let own = self.bridge.join("hermes_home").join("config.yaml");
        own.is_file() || home.join(".hermes").join("config.yaml").is_file()
    }

    fn report_turns(&mut self, session: &str) -> Result<()> {
        let completed = self.completed_turns(session)?;
        let posted = read_json(&self.bridge.join(STATUS)).get("posted").and_then(Value::as_u64).unwrap_or(0);
        if completed > posted {
            let idle = json!({"type": "external_session_status", "data": {"status": "idle"}});
            self.client.post_event(&idle.to_string())?;
            write_json(&self.bridge, STATUS, &json!({"posted": completed}))?;
        }
        Ok(())
    }

    fn completed_turns(&self, session: &str) -> Result<u64> {
        let conn = tail::open_read_only(&self.part.db)?;
        let mut statement = conn.prepare(
            "SELECT tool_calls FROM messages WHERE session_id = ?1 AND role = 'assistant' AND id <= ?2 ORDER BY id",
        )?;
        let mut rows = statement.query((session, self.last_id))?;
        let mut completed = 0;
        while let Some(row) = rows.next()? {
            let column: Option<String> = row.get(0)?;
            completed += u64::from(tail::calls(column.as_deref()).is_empty());
        }
        Ok(completed)
    }

    fn write_state(&self) -> Result<()> {
        let heartbeat_ms = u64::try_from(now().as_millis()).unwrap_or(u64::MAX);
        let state = json!({
            "hermes_session_id": self.session, "last_id": self.last_id,
            "launch_epoch_s": self.part.launch, "heartbeat_ms": heartbeat_ms,
        });
        write_json(&self.bridge, CLAIM, &state)
    }
}

fn read_json(path: &Path) -> Value {
    fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

fn write_json(dir: &Path, name: &str, value: &Value) -> Result<()> {
    fs::create_dir_all(dir)?;
    let aside = dir.join(format!("{name}.tmp"));
    fs::write(&aside, value.to_string())?;
    fs::rename(aside, dir.join(name))?;
    Ok(())
}
