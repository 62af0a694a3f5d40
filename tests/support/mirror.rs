//! The program as a child process in a world of its own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::hermes_db::{HermesDb, now};
use super::shown::shown;
use super::sink::Sink;

/// How long a test waits for what must come. Only a failing test waits that long.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Polls and retries that leave a test no time to pass in idleness.
const QUICK: [(&str, &str); 3] = [
    ("[detect]\n", "poll_ms = 50\nfallback_poll_ms = 200\n"),
    ("[deliver]\n", "timeout_ms = 5000\ndrain_ms = 4000\n"),
    ("[deliver.retry]\n", "initial_ms = 10\nmax_ms = 100\n"),
];

/// A server, a conversation, and directories of a mirror's own.
pub struct World {
    pub sink: Sink,
    pub conversation: String,
    pub launch: f64,
    dir: TempDir,
}

impl World {
    pub fn new() -> Self {
        let sink = Sink::start();
        let conversation = sink.create_conversation();
        let world = Self { sink, conversation, launch: now(), dir: tempfile::tempdir().unwrap() };
        for name in ["home", "hermes", "work", "bridges"] {
            std::fs::create_dir(world.path(name)).unwrap();
        }
        world.configure("");
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn db_path(&self) -> PathBuf {
        self.path("hermes/state.db")
    }

    pub fn workspace(&self) -> PathBuf {
        self.path("work")
    }

    /// A database with the session `s` in the workspace.
    pub fn hermes(&self) -> HermesDb {
        let mut db = HermesDb::create(&self.db_path());
        db.session("s", Some(&self.workspace()));
        db
    }

    /// Sets `[table]` lines beside those that make the mirror quick. A table that is given replaces the quick one.
    pub fn configure(&self, toml: &str) {
        let quick = QUICK.iter().filter(|(table, _)| !toml.contains(table));
        let mut text: String = quick.flat_map(|(table, lines)| [*table, *lines]).collect();
        text.push_str(toml);
        write(&self.path("mirror.toml"), &text);
    }

    /// The bridge directory of a mirror.
    pub fn bridge(&self, name: &str) -> PathBuf {
        self.path("bridges").join(name)
    }

    /// What a runner starts for its terminal.
    pub fn attach(&self) -> Mirror {
        self.attach_as("a", &self.conversation, self.launch)
    }

    pub fn attach_as(&self, bridge: &str, conversation: &str, launch: f64) -> Mirror {
        Mirror::spawn(self.attachment(bridge, conversation, launch))
    }

    /// The same with another level of detail in its log.
    pub fn attach_logging(&self, level: &str) -> Mirror {
        let mut command = self.attachment("a", &self.conversation, self.launch);
        command.env("RUST_LOG", level);
        Mirror::spawn(command)
    }

    /// What a runner starts, to be changed before it is.
    pub fn attachment(&self, bridge: &str, conversation: &str, launch: f64) -> Command {
        self.attachment_to(&self.sink.url(), bridge, conversation, launch)
    }

    /// The same, for another server than this world's.
    pub fn attachment_to(&self, url: &str, bridge: &str, conversation: &str, launch: f64) -> Command {
        let mut command = self.command();
        command.arg("attach").args(["--base-url", url]);
        command.args(["--conversation", conversation, "--launch-epoch", &launch.to_string()]);
        command.arg("--bridge-dir").arg(self.bridge(bridge)).arg("--workspace").arg(self.workspace());
        command.arg("--db").arg(self.db_path()).arg("--config").arg(self.path("mirror.toml"));
        command
    }

    /// `run` over a file with these mirrors; `{db}`, `{work}`, `{url}` stand for this world's own.
    pub fn run(&self, arguments: &[&str], mirrors: &str) -> Mirror {
        self.run_to(&self.sink.url(), arguments, mirrors)
    }

    /// The same, for another server than this world's.
    pub fn run_to(&self, url: &str, arguments: &[&str], mirrors: &str) -> Mirror {
        #[allow(clippy::disallowed_methods, reason = "a file of the test's own, never a database")]
        let text = std::fs::read_to_string(self.path("mirror.toml")).unwrap();
        let deliver = format!("[deliver]\nbase_url = '{url}'\n");
        let state = format!("[state]\ndir = '{}'\n", self.path("state").display());
        let source = format!("[source]\ndb = '{}'\n", self.db_path().display());
        let mirrors = mirrors.replace("{work}", &self.workspace().display().to_string());
        let text = text.replace("[deliver]\n", &deliver);
        write(&self.path("run.toml"), &format!("{source}{state}{text}{mirrors}"));
        let mut command = self.command();
        command.arg("run").arg("--config").arg(self.path("run.toml")).args(arguments);
        Mirror::spawn(command)
    }

    /// The program in this world.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hermes-mirror"));
        command.env_clear().env("HOME", self.path("home")).env("RUST_LOG", "warn,hermes_mirror=debug");
        command
    }

    /// What the conversation has shown so far, in words.
    pub fn shown(&self) -> Vec<String> {
        shown(&self.sink.events(&self.conversation))
    }

    /// Waits until the conversation has shown this much, and checks that it is this.
    pub fn expect(&self, expected: &[&str]) {
        self.expect_in(&self.conversation, expected);
    }

    pub fn expect_in(&self, conversation: &str, expected: &[&str]) {
        let enough = |state: &super::sink::State| shown(state.events(conversation)).len() >= expected.len();
        let _ = self.sink.wait_until(enough, PATIENCE);
        assert_eq!(shown(&self.sink.events(conversation)), expected);
    }

    /// The same, and that nothing else was on its way.
    pub fn expect_all(&self, mirror: Mirror, expected: &[&str]) {
        self.expect(expected);
        mirror.stop();
        assert_eq!(self.shown(), expected);
    }
}

/// Writes a file of the test's own.
#[allow(clippy::disallowed_methods, reason = "a file of the test's own, never a database")]
pub fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[derive(Default)]
struct Log {
    text: Mutex<(String, bool)>,
    changed: Condvar,
}

/// A running mirror; killed when it is dropped.
pub struct Mirror {
    child: Child,
    log: Arc<Log>,
}

impl Mirror {
    pub fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the mirror starts");
        let stderr = child.stderr.take().unwrap();
        let log = Arc::new(Log::default());
        let theirs = Arc::clone(&log);
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stderr);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).unwrap_or(0) > 0 {
                theirs.text.lock().unwrap().0.push_str(&String::from_utf8_lossy(&line));
                theirs.changed.notify_all();
                line.clear();
            }
            theirs.text.lock().unwrap().1 = true;
            theirs.changed.notify_all();
        });
        Self { child, log }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.log.text.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Waits until its log holds `text`.
    pub fn wait_for_log(&self, text: &str) {
        let guard = self.log.text.lock().unwrap();
        let pending = |log: &mut (String, bool)| !log.0.contains(text) && !log.1;
        let (guard, _) = self.log.changed.wait_timeout_while(guard, PATIENCE, pending).unwrap();
        let log = guard.0.clone();
        drop(guard);
        assert!(log.contains(text), "never logged: {text}\n{log}");
    }

    /// Waits for its end. Returns its exit code and all that it logged.
    pub fn wait(mut self) -> (Option<i32>, String) {
        let started = Instant::now();
        let guard = self.log.text.lock().unwrap();
        let (guard, _) = self.log.changed.wait_timeout_while(guard, PATIENCE, |log| !log.1).unwrap();
        let (log, ended) = guard.clone();
        drop(guard);
        assert!(ended, "still running after {:?}\n{log}", started.elapsed());
        (self.child.wait().unwrap().code(), log)
    }

    /// Asks it to end, and waits until it has drained and ended well. Returns its log.
    pub fn stop(self) -> String {
        self.terminate();
        let (code, log) = self.wait();
        assert_eq!(code, Some(0), "{log}");
        log
    }

    /// Sends SIGTERM, once it is there to take it.
    pub fn terminate(&self) {
        self.wait_for_log("started");
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// Ends it in the midst of whatever it does.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The most memory it has held, in kB.
    pub fn peak_memory_kb(&self) -> u64 {
        #[allow(clippy::disallowed_methods, reason = "what the system tells of the process")]
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log.text.lock().unwrap_or_else(PoisonError::into_inner);
            eprintln!("--- the mirror's log\n{}", log.0);
        }
    }
}
