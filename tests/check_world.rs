//! `check` in worlds that are broken, as the person reads it who has to mend them.
#![allow(clippy::unwrap_used, reason = "what can't be set up can't be tested")]
#![allow(clippy::disallowed_methods, reason = "files of the tests' own")]

mod support;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use assert_cmd::cargo::cargo_bin;
use hermes_mirror::config::Deliver;
use hermes_mirror::ids::{ConversationId, HermesSessionId};
use hermes_mirror::omnigent::Client;
use rusqlite::{Connection, OpenFlags};
use support::fault::Fault;
use support::sink::Sink;
use tempfile::TempDir;

/// Tables as hermes-agent 0.19.0 has them, as far as a mirror reads them.
const TABLES: &str = "
    CREATE TABLE schema_version (version INTEGER NOT NULL);
    INSERT INTO schema_version VALUES (22);
    CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, model TEXT, model_config TEXT,
      parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL, end_reason TEXT, input_tokens INTEGER,
      output_tokens INTEGER, cwd TEXT);
    CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL,
      content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL, reasoning TEXT,
      active INTEGER NOT NULL DEFAULT 1, compacted INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE compression_locks (session_id TEXT PRIMARY KEY, holder TEXT, acquired_at REAL, expires_at REAL);
    CREATE TABLE session_model_usage (session_id TEXT NOT NULL, model TEXT NOT NULL, task TEXT NOT NULL DEFAULT '');";

/// The same as 0.13.0 has them: schema 11.
const OLD_TABLES: &str = "
    CREATE TABLE schema_version (version INTEGER NOT NULL);
    INSERT INTO schema_version VALUES (11);
    CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, model TEXT, model_config TEXT,
      parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL, end_reason TEXT, input_tokens INTEGER,
      output_tokens INTEGER);
    CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL,
      content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL, reasoning TEXT);";

/// What of the environment would change an answer.
const VARIABLES: [&str; 8] = [
    "HERMES_STATE_DB",
    "HERMES_HOME",
    "XDG_STATE_HOME",
    "RUST_LOG",
    "RUST_BACKTRACE",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
];

/// A directory with a configuration, a workspace and, mostly, a database; and a server.
struct World {
    _dir: TempDir,
    root: PathBuf,
    sink: Sink,
    conversation: String,
}

impl World {
    /// A world in which all is well: one session in the workspace, one conversation.
    fn sound() -> Self {
        let world = Self::without_database();
        world.sql(TABLES);
        world.session("20261129_202802_c4825e", 1_000.0, Some("work"));
        world
    }

    fn without_database() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let sink = Sink::start();
        let conversation = sink.create_conversation();
        fs::create_dir(root.join("work")).unwrap();
        let world = Self { _dir: dir, root, sink, conversation };
        world.mirror("workspace = \"work\"");
        world
    }

    /// Writes the configuration: one mirror, whose source `keys` says.
    fn mirror(&self, keys: &str) {
        self.configure("", &self.conversation, keys);
    }

    fn configure(&self, deliver: &str, conversation: &str, keys: &str) {
        let url = self.sink.url();
        let text = format!(
            "[source]\ndb = \"state.db\"\n[state]\ndir = \"state\"\n[deliver]\nbase_url = \"{url}\"\n{deliver}\n\
             [[mirror]]\nconversation = \"{conversation}\"\n{keys}\n"
        );
        fs::write(self.root.join("pipeline.toml"), text).unwrap();
    }

    /// Configures a token from a file.
    fn token(&self) {
        fs::write(self.root.join("token"), "hunter2\n").unwrap();
        let auth = "[deliver.auth.file]\npath = \"token\"";
        self.configure(auth, &self.conversation, "workspace = \"work\"");
    }

    fn database(&self) -> PathBuf {
        self.root.join("state.db")
    }

    fn sql(&self, sql: &str) {
        let conn = Connection::open_with_flags(self.database(), OpenFlags::default()).unwrap();
        conn.execute_batch(&format!("PRAGMA journal_mode = WAL; {sql}")).unwrap();
    }

    fn session(&self, id: &str, started_at: f64, cwd: Option<&str>) {
        self.sql(&format!(
            "INSERT INTO sessions (id, source, started_at) VALUES ('{id}', 'cli', {started_at})"
        ));
        if let Some(cwd) = cwd {
            let cwd = self.root.join(cwd);
            self.sql(&format!("UPDATE sessions SET cwd = '{}' WHERE id = '{id}'", cwd.display()));
        }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        for variable in VARIABLES {
            command.env_remove(variable);
        }
        command.env("HOME", &self.root).current_dir(&self.root).arg("check");
        command
    }

    fn check(&self, arguments: &[&str]) -> String {
        self.answer(&self.command(cargo_bin!("hermes-mirror")).args(arguments).output().unwrap())
    }

    /// What was said and how it ended, without what differs from run to run.
    fn answer(&self, output: &Output) -> String {
        let [out, err] = [&output.stdout, &output.stderr].map(|text| std::str::from_utf8(text).unwrap());
        let code = output.status.code().unwrap();
        let answer = format!("exit code {code}\n--- stdout\n{out}--- stderr\n{err}");
        assert!(!answer.contains("hunter2"), "the token is shown: {answer}");
        answer
            .replace(self.root.to_str().unwrap(), "[dir]")
            .replace(&self.sink.url(), "http://[server]")
            .replace(&self.conversation, "[conversation]")
    }
}

/// Compares with the snapshot; the system's error numbers differ from system to system.
fn snapshot(name: &str, answer: &str) {
    insta::with_settings!({filters => vec![(r" \(os error \d+\)", "")]}, {
        insta::assert_snapshot!(name, answer);
    });
}

#[test]
fn a_sound_world_is_said_to_be_sound() {
    let world = World::sound();
    snapshot("sound", &world.check(&[]));
    assert!(!world.root.join("state").exists(), "a check makes nothing");
    assert!(world.sink.requests().iter().all(|request| request.method == "GET"), "and changes nothing");
}

#[test]
fn a_conversation_that_is_to_be_made() {
    let world = World::sound();
    world.configure("", "new", "workspace = \"work\"");
    snapshot("conversation_new", &world.check(&[]));
    assert!(!world.root.join("state").exists(), "a check makes nothing");
    assert!(world.sink.requests().iter().all(|request| request.method == "GET"), "and changes nothing");
    world.sink.script(|request| match request.path.as_str() {
        "/v1/agents" => Fault::Status(404),
        _ => Fault::None,
    });
    snapshot("conversation_cannot_be_made", &world.check(&[]));
}

#[test]
fn offline_asks_no_server() {
    let world = World::sound();
    snapshot("offline", &world.check(&["--offline"]));
    assert!(world.sink.requests().is_empty());
}

#[test]
fn no_server() {
    let world = World::sound();
    world.sink.stop();
    snapshot("no_server", &world.check(&[]));
}

#[test]
fn not_an_omnigent_server() {
    let world = World::sound();
    world.sink.script(|_| Fault::Html);
    snapshot("server_html", &world.check(&[]));
    world.sink.script(|_| Fault::OtherJson);
    snapshot("server_other_json", &world.check(&[]));
    world.sink.script(|_| Fault::Status(404));
    snapshot("server_404", &world.check(&[]));
}

#[test]
fn a_server_that_stays_silent_is_waited_for_no_longer_than_configured() {
    let world = World::sound();
    world.configure("timeout_ms = 100", &world.conversation, "workspace = \"work\"");
    world.sink.script(|_| Fault::Stall);
    snapshot("server_silent", &world.check(&[]));
}

#[test]
fn tls_where_none_is_spoken() {
    let world = World::sound();
    let url = world.sink.url().replace("http:", "https:");
    let file = world.root.join("pipeline.toml");
    let text = fs::read_to_string(&file).unwrap().replace(&world.sink.url(), &url);
    fs::write(&file, text).unwrap();
    let answer = world.check(&[]);
    // What is said of it depends on the certificates of the machine.
    assert!(answer.starts_with("exit code 1") && answer.contains("\nFAIL server: "), "{answer}");
    assert!(answer.contains("https:// needs"), "{answer}");
}

#[test]
fn a_redirect_to_a_login_page() {
    let world = World::sound();
    world.sink.script(|_| Fault::Redirect);
    snapshot("redirect_without_token", &world.check(&[]));
    world.token();
    snapshot("redirect_with_token", &world.check(&[]));
}

#[test]
fn a_token_that_is_refused_or_missing() {
    let world = World::sound();
    // Health is answered to anyone.
    let refuse = |request: &support::sink::Request| match request.path.as_str() {
        "/health" => Fault::None,
        _ => Fault::Status(401),
    };
    world.sink.script(refuse);
    snapshot("token_wanted", &world.check(&[]));
    world.token();
    snapshot("token_refused", &world.check(&[]));
    fs::write(world.root.join("token"), "\n").unwrap();
    snapshot("token_empty", &world.check(&[]));
    fs::remove_file(world.root.join("token")).unwrap();
    snapshot("token_file_missing", &world.check(&[]));
}

#[test]
fn a_conversation_that_is_unknown_or_another_persons() {
    let world = World::sound();
    world.sink.delete_conversation(&world.conversation);
    snapshot("conversation_unknown", &world.check(&[]));
    world.token();
    world.sink.script(|request| match request.path.as_str() {
        "/health" => Fault::None,
        _ => Fault::Status(403),
    });
    snapshot("conversation_forbidden", &world.check(&[]));
}

#[test]
fn a_database_that_is_not_there_or_is_none() {
    let world = World::without_database();
    snapshot("database_missing", &world.check(&[]));
    fs::create_dir(world.database()).unwrap();
    snapshot("database_directory", &world.check(&[]));
    fs::remove_dir(world.database()).unwrap();
    fs::write(world.database(), "to do: buy milk\n".repeat(100)).unwrap();
    snapshot("database_no_database", &world.check(&[]));
}

#[test]
fn a_database_without_hermes_tables() {
    let world = World::without_database();
    world.sql("CREATE TABLE notes (id INTEGER PRIMARY KEY)");
    snapshot("database_not_hermes", &world.check(&[]));
}

#[test]
fn an_old_schema_is_named_with_what_it_cannot_tell() {
    let world = World::without_database();
    world.sql(OLD_TABLES);
    world.session("20261129_202802_c4825e", 1_000.0, None);
    snapshot("schema_old", &world.check(&[]));
}

#[test]
fn several_sessions_and_nothing_to_choose_by() {
    let world = World::without_database();
    world.sql(TABLES);
    for n in 1..=3 {
        world.session(&format!("20261129_20280{n}_c4825e"), f64::from(n), None);
    }
    snapshot("session_ambiguous", &world.check(&[]));
}

#[test]
fn a_named_session_that_is_not_there() {
    let world = World::sound();
    world.mirror("session = \"20261129_202802_c4825f\"");
    snapshot("session_unknown", &world.check(&[]));
}

#[test]
fn no_session_fits_yet() {
    let world = World::sound();
    world.mirror("workspace = \"work\"\nlaunch_epoch = 5000");
    snapshot("session_none", &world.check(&[]));
}

#[test]
fn a_session_that_another_mirror_follows() {
    let world = World::sound();
    let sibling = world.root.join("state/other");
    fs::create_dir_all(&sibling).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let claim = format!(
        "{{\"hermes_session_id\": \"20261129_202802_c4825e\", \"launch_epoch_s\": 1, \"heartbeat_ms\": {now}}}"
    );
    fs::write(sibling.join("hermes_forwarder.json"), claim).unwrap();
    snapshot("session_taken", &world.check(&[]));
}

#[test]
fn a_cursor_says_where_it_would_go_on() {
    let world = World::sound();
    let bridge = world.root.join("state").join(&world.conversation);
    fs::create_dir_all(&bridge).unwrap();
    let cursor = "{\"hermes_session_id\": \"20261129_202802_c4825e\", \"last_id\": 41}";
    fs::write(bridge.join("hermes_forwarder.json"), cursor).unwrap();
    let answer = world.check(&["--offline"]);
    assert!(answer.contains("stays with session 20261129_202802_c4825e, going on after row 41"), "{answer}");
}

#[test]
fn a_conversation_that_shows_another_session() {
    let world = World::sound();
    let deliver = Deliver { base_url: world.sink.url(), ..Deliver::default() };
    let client = Client::new(&deliver, Box::new(|_| None)).unwrap();
    let conversation = ConversationId::new(world.conversation.as_str());
    let bind = async { client.bind(&conversation, &HermesSessionId::new("20251231_000000_abcdef")).await };
    tokio::runtime::Runtime::new().unwrap().block_on(bind).unwrap();
    snapshot("conversation_of_another_session", &world.check(&[]));
}

/// Root may write any directory, so there the program runs as nobody, from a place that it can enter.
#[test]
fn a_directory_in_which_sqlite_cannot_make_its_files() {
    let world = World::sound();
    let program = world.root.join("hermes-mirror");
    fs::copy(cargo_bin!("hermes-mirror"), &program).unwrap();
    assert!(!world.root.join("state.db-shm").exists(), "the last writer took it along");
    let is_root = fs::metadata(&program).unwrap().uid() == 0;
    let mode = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    mode(&program, 0o755);
    mode(&world.database(), 0o644);
    mode(&world.root.join("pipeline.toml"), 0o644);
    mode(&world.root, if is_root { 0o555 } else { 0o500 });
    let mut command = world.command(&program);
    command.arg("--offline");
    if is_root {
        command.uid(65_534).gid(65_534);
    }
    let output = command.output();
    mode(&world.root, 0o700);
    match output {
        Err(error) if is_root && error.kind() == ErrorKind::PermissionDenied => {
            eprintln!("not shown: root can't become nobody here, or nobody can't enter the place: {error}");
        }
        output => snapshot("database_sealed", &world.answer(&output.unwrap())),
    }
}
