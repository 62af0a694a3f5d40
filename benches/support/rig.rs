//! A world of its own for one run: home, workspace, bridge directories and state.db, gone when the run is over.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tempfile::TempDir;

use super::hermes_db::{self, Layout, now};
use super::role::{Part, Role};
use super::script::{self, ROWS_PER_TURN};
use super::sink::Sink;

/// A database that is filled once and copied for each run.
pub struct Template {
    path: PathBuf,
    pub layout: Layout,
}

impl Template {
    /// Fills it. Rows are rounded up to a whole number of turns for each session.
    pub fn create(scratch: &Path, layout: Layout, seed: u64) -> Result<Self> {
        let whole = |rows: u32| rows.next_multiple_of(ROWS_PER_TURN * layout.sessions);
        let layout = Layout { history: whole(layout.history), backlog: whole(layout.backlog), ..layout };
        let Layout { sessions, history, foreign, backlog } = layout;
        let path = scratch.join(format!("template-{sessions}-{history}-{foreign}-{backlog}.db"));
        if !path.exists() {
            hermes_db::create(&path, &layout, seed)?;
        }
        Ok(Self { path, layout })
    }
}

/// The world of one run.
pub struct Rig {
    root: TempDir,
    canonical: PathBuf,
    layout: Layout,
    launch: f64,
}

impl Rig {
    /// Lays everything out below `scratch`, with sessions that were started just now, or before their backlog.
    ///
    /// Where they have a history, the cursors stand behind it, as after a restart of the mirror.
    pub fn new(scratch: &Path, template: &Template) -> Result<Self> {
        let root =
            tempfile::Builder::new().prefix("run-").tempdir_in(scratch).context("make a run's directory")?;
        // Workspaces are compared by their real paths.
        let canonical = root.path().canonicalize()?;
        let layout = template.layout;
        let launch = now().as_secs_f64() - layout.backlog_s();
        let rig = Self { root, canonical, layout, launch };
        for directory in [rig.home(), rig.workspace(), rig.bridges()] {
            fs::create_dir_all(directory)?;
        }
        fs::copy(&template.path, rig.db()).context("copy the database")?;
        hermes_db::start_sessions(&rig.db(), layout.sessions, &rig.workspace(), launch)?;
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
    pub fn part(&self, seed: u64, gaps: (Duration, Duration), sink: &Sink) -> Part {
        Part {
            role: Role::Writer,
            db: self.db(),
            sessions: self.layout.sessions,
            cursor: self.layout.cursor(),
            seed,
            shortest_gap: gaps.0,
            longest_gap: gaps.1.max(gaps.0),
            sink: sink.address(),
            bridges: self.bridges(),
            workspace: self.workspace(),
            launch: self.launch,
            requests: self.canonical.join("requests"),
        }
    }

    /// Puts cursors into the bridge directories, as a runner does, where the sessions have rows already.
    pub fn place_cursors(&self, part: &Part) -> Result<()> {
        let Layout { sessions, history, backlog, .. } = self.layout;
        for number in 0..sessions {
            let bridge = part.bridge(number);
            fs::create_dir_all(&bridge)?;
            if history + backlog == 0 {
                continue;
            }
            let heartbeat_ms = u64::try_from(now().as_millis()).unwrap_or(u64::MAX);
            let cursor = json!({
                "hermes_session_id": script::session(number), "last_id": part.cursor,
                "launch_epoch_s": self.launch, "heartbeat_ms": heartbeat_ms,
            });
            fs::write(bridge.join("hermes_forwarder.json"), cursor.to_string())?;
            let posted = json!({"posted": history / ROWS_PER_TURN / sessions});
            fs::write(bridge.join("hermes_status_forwarder.json"), posted.to_string())?;
        }
        Ok(())
    }

    fn home(&self) -> PathBuf {
        self.canonical.join("home")
    }

    fn workspace(&self) -> PathBuf {
        self.canonical.join("workspace")
    }

    fn bridges(&self) -> PathBuf {
        self.canonical.join("bridges")
    }

    fn db(&self) -> PathBuf {
        self.canonical.join("state.db")
    }
}
