//! `pipeline.toml` as types. A value that is absent has the default that stands here.
//!
//! [`load`] reads and validates a file; what a stage gets is its own table, already valid.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

pub mod choice;
pub mod diagnostic;
mod mirrors;
pub mod pattern;
mod problems;
mod reader;
pub mod rules;
pub mod validate;

pub use choice::{Choice, Glob, History};
pub use diagnostic::{ConfigError, Diagnostic};
pub use pattern::Pattern;
pub use validate::{load, parse};

/// The name on the model's messages where a mirror gives none: that of Omnigent's built-in agent for Hermes terminals.
pub const DEFAULT_AGENT: &str = "hermes-native-ui";

/// What stands as a mirror's `conversation` where it is to make one on the server.
pub const NEW_CONVERSATION: &str = "new";

/// The sources of Hermes's terminals: the classic one and the full-screen one. What messaging platforms, schedules,
/// tools and servers write is nobody's terminal.
pub const DEFAULT_SOURCES: [&str; 2] = ["cli", "tui"];

/// [`DEFAULT_SOURCES`], for a mirror that names none.
#[must_use]
pub fn default_sources() -> Vec<String> {
    DEFAULT_SOURCES.map(str::to_owned).to_vec()
}

/// [`NEW_CONVERSATION`], for a mirror that needs to name none.
#[must_use]
pub fn new_conversation() -> String {
    NEW_CONVERSATION.to_owned()
}

/// A whole `pipeline.toml`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where Hermes keeps its sessions.
    pub source: Source,
    /// How a change is noticed.
    pub detect: Detect,
    /// How much is read at a time.
    pub read: Read,
    /// What a row becomes.
    pub transform: Transform,
    /// How turns are followed.
    pub turns: Turns,
    /// Where items go, and how.
    pub deliver: Deliver,
    /// Where the mirror keeps its own files.
    pub state: State,
    /// Where a running mirror shows how it stands.
    pub status: Status,
    /// Commands of your own, run when something happens.
    pub hooks: Hooks,
    /// One for each conversation to feed, or one for all sessions that match. Repeat the table for more.
    pub mirror: Vec<Mirror>,
}

impl Config {
    /// The database that a mirror reads; `None` where neither it nor `[source]` says so.
    #[must_use]
    pub fn database_of<'a>(&'a self, mirror: &'a Mirror) -> Option<&'a Path> {
        mirror.db.as_deref().or(self.source.db.as_deref())
    }

    /// The databases that the mirrors read, each once.
    #[must_use]
    pub fn databases(&self) -> Vec<&Path> {
        let mut databases = Vec::new();
        for database in self.mirror.iter().filter_map(|mirror| self.database_of(mirror)) {
            if !databases.contains(&database) {
                databases.push(database);
            }
        }
        databases
    }
}

/// `[source]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Source {
    /// Path of state.db. Default: `$HERMES_STATE_DB`, else `$HERMES_HOME/state.db`, else `~/.hermes/state.db`.
    pub db: Option<PathBuf>,
}

/// How changes are noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DetectMode {
    /// File-system events, with the timed poll beside them.
    #[default]
    Auto,
    /// The timed poll alone.
    Poll,
}

/// `[detect]`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Detect {
    /// `auto` (file-system events, with the timed poll beside them) or `poll` (the timed poll alone).
    pub mode: DetectMode,
    /// Timed poll beside a working watcher, in ms (100 to 60000).
    pub fallback_poll_ms: u64,
    /// Timed poll where there is no watcher, in ms (1 to 60000).
    pub poll_ms: u64,
    /// The same while a turn runs, in ms. Range: 1 to 60000.
    pub turn_poll_ms: u64,
    /// How often to look for a commit while one is under way, in us (50 to 10000).
    pub look_us: u64,
    /// How long after the last event to go on looking, in ms (5 to 10000).
    pub settle_ms: u64,
    /// After how long without a change the database is let go, in ms (100 to 3600000).
    pub release_after_ms: u64,
}

impl Default for Detect {
    fn default() -> Self {
        Self {
            mode: DetectMode::Auto,
            fallback_poll_ms: 2_000,
            poll_ms: 400,
            turn_poll_ms: 4,
            look_us: 200,
            settle_ms: 250,
            release_after_ms: 5_000,
        }
    }
}

/// `[read]`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Read {
    /// Most rows in one read (1 to 10000).
    pub batch_rows: u32,
    /// Most bytes in one read, and waiting on one lane, but always at least one row (4096 to 268435456).
    pub batch_bytes: u64,
    /// How long one read waits for a lock that Hermes holds, in ms (0 to 1000).
    pub busy_ms: u64,
}

impl Default for Read {
    fn default() -> Self {
        Self { batch_rows: 256, batch_bytes: 4 << 20, busy_ms: 50 }
    }
}

/// What happens to text in the user's role that the person did not type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Synthetic {
    /// Sent with `is_meta: true`.
    #[default]
    Meta,
    /// Not sent.
    Skip,
}

/// `[transform]`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Transform {
    /// Text in the user's role that the person did not type: `meta` (sent with `is_meta: true`) or `skip`.
    pub synthetic: Synthetic,
    /// Longest tool output, in characters (256 to 10000000); the rest is cut, and a marker says how much.
    pub max_output_chars: usize,
    /// Longest message, reasoning or arguments, in characters (256 to 10000000).
    pub max_text_chars: usize,
    /// Largest image sent along, in bytes of its `data:` URL (0 to 104857600); a larger one becomes a placeholder.
    pub max_image_bytes: usize,
    /// Send the model's reasoning.
    pub reasoning: bool,
    /// Secrets are masked before anything is sent.
    pub egress: Egress,
}

impl Default for Transform {
    fn default() -> Self {
        Self {
            synthetic: Synthetic::Meta,
            max_output_chars: 16_384,
            max_text_chars: 1_000_000,
            max_image_bytes: 8 << 20,
            reasoning: true,
            egress: Egress::default(),
        }
    }
}

/// `[transform.egress]`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Egress {
    /// Mask secrets in everything that is sent: known shapes of credentials, and what `patterns` match. Each becomes
    /// `[masked]`; what says which kind it was stays, as in `ghp_[masked]`.
    pub enabled: bool,
    /// Regular expressions of what else to mask. Where one has a group, its first group is masked; else all that it
    /// matches. None may match the empty text.
    pub patterns: Vec<Pattern>,
}

impl Default for Egress {
    fn default() -> Self {
        Self { enabled: true, patterns: Vec::new() }
    }
}

/// `[turns]`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Turns {
    /// How often `running` is asserted again while an open turn is silent, in ms (50 to 60000; 0: never).
    pub reassert_ms: u64,
    /// For how long a silent turn is kept running, in s (1 to 604800).
    pub reassert_for_s: u64,
    /// When messages that were shown are taken back (`/undo`), say so in the conversation, where they stay.
    pub undo_note: bool,
}

impl Default for Turns {
    fn default() -> Self {
        Self { reassert_ms: 500, reassert_for_s: 3_600, undo_note: false }
    }
}

/// `[deliver]`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Deliver {
    /// Address of the Omnigent server; may carry a path prefix.
    pub base_url: String,
    /// Total time for one request, in ms (100 to 600000).
    pub timeout_ms: u64,
    /// Time to connect, in ms (50 to 60000).
    pub connect_timeout_ms: u64,
    /// How long an idle connection is kept for reuse, in ms (0 to 600000); below the server's own limit, 5 s for uvicorn.
    pub keep_alive_ms: u64,
    /// Rows that may wait on one lane (1 to 10000); the others wait in state.db.
    pub queue_rows: usize,
    /// After a signal, how long delivery may go on, in ms (0 to 600000).
    pub drain_ms: u64,
    /// Waiting between tries.
    pub retry: Retry,
    /// Where the bearer token comes from; no more than one of the tables.
    pub auth: Auth,
}

impl Default for Deliver {
    fn default() -> Self {
        Self {
            base_url: "http://127.0.0.1:6767".to_owned(),
            timeout_ms: 30_000,
            connect_timeout_ms: 5_000,
            keep_alive_ms: 4_000,
            queue_rows: 64,
            drain_ms: 5_000,
            retry: Retry::default(),
            auth: Auth::default(),
        }
    }
}

/// `[deliver.retry]`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// First wait, in ms (1 to 60000).
    pub initial_ms: u64,
    /// Longest wait, in ms (`initial_ms` to 3600000).
    pub max_ms: u64,
    /// What each wait is of the one before (1.0 to 10.0).
    pub multiplier: f64,
    /// By what part a wait may differ from its plan, so that many mirrors do not knock together (0.0 to 1.0).
    pub jitter: f64,
    /// Longest `Retry-After` that is obeyed, in ms (0 to 3600000).
    pub max_retry_after_ms: u64,
}

impl Default for Retry {
    fn default() -> Self {
        Self { initial_ms: 100, max_ms: 15_000, multiplier: 2.0, jitter: 0.3, max_retry_after_ms: 60_000 }
    }
}

/// `[deliver.auth]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// From an environment variable.
    pub env: Option<AuthEnv>,
    /// From a file, read again when the server refuses the token.
    pub file: Option<AuthFile>,
    /// From a command's output, run again when the server refuses the token.
    pub command: Option<AuthCommand>,
}

/// `[deliver.auth.env]`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthEnv {
    /// The variable's name.
    pub name: String,
}

/// `[deliver.auth.file]`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthFile {
    /// The file; its first line is the token.
    pub path: PathBuf,
}

/// `[deliver.auth.command]`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthCommand {
    /// Program and arguments; no shell. The first line of its output is the token. A program with a slash in its name
    /// is a path like any other in this file.
    pub argv: Vec<String>,
}

/// `[state]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct State {
    /// Where the ledger is kept, and what mirrors without a bridge directory write.
    /// Default: `$XDG_STATE_HOME/hermes-mirror`, else `~/.local/state/hermes-mirror`.
    pub dir: Option<PathBuf>,
}

/// `[status]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Status {
    /// Where a page shows how the mirrors stand, and `/healthz`, `/metrics` and `/status.json` tell it to machines:
    /// `127.0.0.1:PORT` or `[::1]:PORT`, nothing that another machine could reach. Default: nowhere.
    pub listen: Option<SocketAddr>,
}

/// `[hooks]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Hooks {
    /// Program and arguments, no shell: run when a turn has ended and its last item is delivered.
    pub turn_end: Option<Vec<String>>,
    /// The same, when the model has asked you something and waits.
    pub waiting: Option<Vec<String>>,
    /// The same, when a mirror is held, parked or degraded from then on.
    pub degraded: Option<Vec<String>>,
    /// How long a command may take before it is killed, in ms (100 to 600000).
    pub timeout_ms: u64,
}

impl Default for Hooks {
    fn default() -> Self {
        Self { turn_end: None, waiting: None, degraded: None, timeout_ms: 10_000 }
    }
}

/// `[[mirror]]`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mirror {
    /// The Omnigent conversation to feed, or `new`: one is made once there is a session to show, and kept from then on.
    /// Default: `new` beside `match`, where it can be nothing else; without that it is needed.
    #[serde(default = "new_conversation")]
    pub conversation: String,
    /// Which sessions to mirror, each to a conversation of its own: `all`, or those that fit what is given here. A
    /// session is taken once it has a row that came after the mirror was first started. `session`, `workspace`,
    /// `launch_epoch` and `bridge_dir` are each session's own and can't stand beside it.
    #[serde(default, rename = "match")]
    #[schemars(schema_with = "choice::all_or_choice")]
    pub matching: Option<Choice>,
    /// Which sessions to leave out of those that match: any that fits something of what is given here.
    #[serde(default)]
    pub exclude: Choice,
    /// Path of the state.db that holds the sessions. Default: that of `[source]`.
    #[serde(default)]
    pub db: Option<PathBuf>,
    /// The Hermes session to follow; found by `workspace` and `launch_epoch` where absent.
    #[serde(default)]
    pub session: Option<String>,
    /// The directory the Hermes terminal works in. The session that is the newest there when the mirror first finds one
    /// is followed. Default: none; needed where neither `session` nor `match` is given.
    #[serde(default)]
    pub workspace: Option<PathBuf>,
    /// When the terminal was started, in s since the epoch (0 to 100000000000). A session that started more than 10 s
    /// before is not its own.
    #[serde(default)]
    pub launch_epoch: Option<f64>,
    /// The bridge directory of an Omnigent runner, where the claim and cursor are kept. Default: one below `[state] dir`.
    #[serde(default)]
    pub bridge_dir: Option<PathBuf>,
    /// Which of Hermes's sessions may be the terminal's, by their `source`. Not asked of a `session` that is named.
    #[serde(default = "default_sources")]
    pub sources: Vec<String>,
    /// Where to begin in a session of which nothing was shown: `none` (behind what is there), `open-turn` (with the turn
    /// that is open, where one is), `all` (with its first row), or with so many of the last rows (1 to 1000000) and the
    /// turn that they begin in. Default: with the first row; in a session that was begun before its terminal and taken
    /// up again, with what was said since.
    #[serde(default)]
    pub history: Option<History>,
    /// The name that the model's messages carry. Default: `hermes-native-ui`.
    #[serde(default)]
    pub agent_name: Option<String>,
}

impl Mirror {
    /// Whether its conversation is made by the mirror, and not known beforehand.
    #[must_use]
    pub fn makes_conversation(&self) -> bool {
        self.conversation == NEW_CONVERSATION
    }
}
