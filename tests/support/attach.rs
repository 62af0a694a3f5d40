//! The program under test as a runner starts it: `hermes-mirror attach`.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use crate::conversation::AGENT;

/// How long the program may take to drain and go.
const STOP: Duration = Duration::from_mins(1);

/// A running `attach`; killed when dropped.
pub struct Attach {
    child: Child,
    directory: TempDir,
}

impl Attach {
    /// Starts it for a terminal that was launched just now.
    pub fn start(base_url: &str, conversation: &str, db: &Path, workspace: &Path) -> Self {
        let directory = TempDir::new().expect("a directory");
        let bridge = directory.path().join("bridges/one");
        std::fs::create_dir_all(&bridge).expect("a bridge directory");
        let log = std::fs::File::create(directory.path().join("log")).expect("a log");
        let launch = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
        let child = Command::new(env!("CARGO_BIN_EXE_hermes-mirror"))
            .args(["attach", "--base-url", base_url, "--conversation", conversation])
            .args(["--agent-name", AGENT, "--launch-epoch", &launch.to_string()])
            .args([Path::new("--bridge-dir"), &bridge, Path::new("--workspace"), workspace])
            .args([Path::new("--db"), db])
            .current_dir(directory.path())
            .env("HOME", directory.path())
            .env_remove("HERMES_HOME")
            .env_remove("HERMES_STATE_DB")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("the program starts");
        Self { child, directory }
    }

    /// Fails the test, with the program's log, if it has ended by itself.
    pub fn must_run(&mut self) {
        let ended = self.child.try_wait().expect("a child");
        assert!(ended.is_none(), "attach ended by itself: {ended:?}\n{}", self.log());
    }

    /// Asks it to stop and waits until it has drained and gone.
    pub fn stop(&mut self) -> ExitStatus {
        let term = format!("kill -s TERM {}", self.child.id());
        Command::new("sh").args(["-c", &term]).status().expect("a shell");
        let deadline = Instant::now() + STOP;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(Instant::now() < deadline, "attach does not stop\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Attach {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
