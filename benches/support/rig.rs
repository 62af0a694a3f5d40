//! A world of its own for one run: home, workspace, bridge directory and state.db, gone when the run is over.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;
use tempfile::TempDir;

use super::hermes_db::{self, now};
use super::options::Options;
use super::role::{Part, Role};
use super::script::ROWS_PER_TURN;
use super::sink::Sink;

const SESSION: &str = "20260101_120000_bench1";
const CONVERSATION: &str = "conv_bench";

/// A database that is filled once and copied for each run.
pub struct Template {
    path: PathBuf,
    /// Rows in its session.
    history: u32,
}

impl Template {
    /// Fills it with `history` rows, which should be whole turns.
    pub fn create(scratch: &Path, history: u32, seed: u64) -> Result<Self> {
        let path = scratch.join(format!("template-{history}.db"));
        if !path.exists() {
            hermes_db::create(&path, SESSION, history, seed)?;
        }
        Ok(Self { path, history })
    }
}

/// The world of one run.
pub struct Rig {
    root: TempDir,
    canonical: PathBuf,
    history: u32,
    launch: f64,
}

impl Rig {
    /// Lays everything out below `scratch`, with a session that was started just now.
    ///
    /// Where the session has a history, the cursor stands behind it, as after a restart of the mirror.
    pub fn new(scratch: &Path, template: &Template) -> Result<Self> {
        let root =
            tempfile::Builder::new().prefix("run-").tempdir_in(scratch).context("make a run's directory")?;
        // Workspaces are compared by their real paths.
        let canonical = root.path().canonicalize()?;
        let rig = Self { root, canonical, history: template.history, launch: now().as_secs_f64() };
        for directory in [rig.home(), rig.workspace(), rig.bridge()] {
            fs::create_dir_all(directory)?;
        }
        fs::copy(&template.path, rig.db()).context("copy the database")?;
        hermes_db::start_session(&rig.db(), SESSION, &rig.workspace())?;
        if rig.history > 0 {
            let heartbeat_ms = u64::try_from(now().as_millis()).unwrap_or(u64::MAX);
            let cursor = json!({
                "hermes_session_id": SESSION, "last_id": rig.history,
                "launch_epoch_s": rig.launch, "heartbeat_ms": heartbeat_ms,
            });
            fs::write(rig.bridge().join("hermes_forwarder.json"), cursor.to_string())?;
            let posted = json!({"posted": rig.history / ROWS_PER_TURN});
            fs::write(rig.bridge().join("hermes_status_forwarder.json"), posted.to_string())?;
        }
        Ok(rig)
    }

    /// Where everything is.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The whole environment of a subject.
    pub fn environment(&self) -> [(&'static str, PathBuf); 4] {
        let home = self.home();
        [
            ("XDG_STATE_HOME", home.join("state")),
            ("XDG_CONFIG_HOME", home.join("config")),
            ("HERMES_STATE_DB", self.db()),
            ("HOME", home),
        ]
    }

    /// What those who take part need to know; the role is filled in by whoever starts one.
    pub fn part(&self, options: &Options, sink: &Sink) -> Part {
        let (shortest_gap, longest_gap) = options.gaps();
        Part {
            role: Role::Writer,
            db: self.db(),
            session: SESSION.to_owned(),
            history: self.history,
            seed: options.seed,
            shortest_gap,
            longest_gap,
            sink: sink.address(),
            conversation: CONVERSATION.to_owned(),
            bridge: self.bridge(),
            workspace: self.workspace(),
            launch: self.launch,
        }
    }

    fn home(&self) -> PathBuf {
        self.canonical.join("home")
    }

    fn workspace(&self) -> PathBuf {
        self.canonical.join("workspace")
    }

    fn bridge(&self) -> PathBuf {
        self.canonical.join("bridges").join("one")
    }

    fn db(&self) -> PathBuf {
        self.canonical.join("state.db")
    }
}
