//! `status`: how a running mirror stands.

use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use hermes_mirror::state::{dir, socket};
use hermes_mirror::status::{self, Bars, Snapshot, VERSION};
use serde_json::json;

use super::output::{self, safe_json};
use super::resolve::load_if_any;

/// How often it is asked with `--watch`.
const EVERY: Duration = Duration::from_secs(1);
/// Clears the terminal and begins at its top.
const CLEAR: &str = "\x1b[H\x1b[2J";
/// It runs, and something is amiss.
const UNWELL: u8 = 3;

const NOTES: &str = "\
The process is found by the socket in its state directory. One that was started by `attach` has its bridge \
directory for that, unless its configuration has `dir` in [state]: name that directory with --state-dir.

With --json it prints one object, whose `version` is 1; docs/operations.md says what it holds. Where nothing runs, \
that is {\"version\": 1, \"running\": false}.

Exit codes:
  0  running, and all is well
  1  not running, or failed
  2  usage or configuration
  3  running, and the source can't be read, or a mirror is held, parked or degraded";

/// The arguments of `status`.
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct Status {
    /// Print JSON, on one line
    #[arg(long)]
    json: bool,
    /// Look again every second, until a signal
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    place: Place,
}

/// Which process is meant.
#[derive(Debug, Args)]
pub struct Place {
    /// The configuration [default: pipeline.toml, where there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The process's state directory [default: `dir` in [state] of the configuration, else
    /// `$XDG_STATE_HOME/hermes-mirror`, else `~/.local/state/hermes-mirror`]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

impl Place {
    /// The state directory.
    pub fn directory(&self) -> anyhow::Result<PathBuf> {
        match &self.state_dir {
            Some(named) => Ok(named.clone()),
            None => Ok(dir::root(&load_if_any(self.config.as_deref())?.state)?),
        }
    }
}

/// Asks and prints, once or again and again.
pub fn run(arguments: &Status) -> anyhow::Result<ExitCode> {
    let directory = arguments.place.directory()?;
    if !arguments.watch {
        return show(arguments, &directory, "");
    }
    let clear = if io::stdout().is_terminal() && !arguments.json { CLEAR } else { "" };
    loop {
        show(arguments, &directory, clear)?;
        std::thread::sleep(EVERY);
    }
}

fn show(arguments: &Status, directory: &Path, before: &str) -> anyhow::Result<ExitCode> {
    let answer = ask(directory, "status")?;
    let (text, code) = match &answer {
        None if arguments.json => (format!("{}\n", json!({"version": VERSION, "running": false})), 1),
        None => (format!("not running: nobody answers at {}\n", socket::path(directory).display()), 1),
        Some(answer) => {
            let snapshot = read(answer)?;
            let text =
                if arguments.json { safe_json(answer) + "\n" } else { status::text(&snapshot, bars()) };
            (text, if snapshot.well { 0 } else { UNWELL })
        }
    };
    output::print(format!("{before}{text}").as_bytes())?;
    Ok(ExitCode::from(code))
}

/// Puts a question to the process that has the state directory; `None` where there is none.
pub fn ask(directory: &Path, question: &str) -> anyhow::Result<Option<String>> {
    let path = socket::path(directory);
    let asking = || format!("cannot ask the process at {}", path.display());
    let Some(mut stream) = socket::connect(directory).with_context(asking)? else { return Ok(None) };
    let mut answer = String::new();
    stream.write_all(format!("{question}\n").as_bytes()).with_context(asking)?;
    stream.read_to_string(&mut answer).with_context(asking)?;
    Ok(Some(answer))
}

fn read(answer: &str) -> anyhow::Result<Snapshot> {
    let answer: serde_json::Value = serde_json::from_str(answer).context("the answer is no JSON")?;
    match answer["version"].as_u64() {
        Some(version) if version == u64::from(VERSION) => {
            serde_json::from_value(answer).context("the answer is incomplete")
        }
        Some(other) => {
            bail!("the process answers in version {other} of the status, which this program does not know")
        }
        None => bail!("what answers is no hermes-mirror"),
    }
}

/// Block characters where the terminal shows them.
fn bars() -> Bars {
    let named = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale =
        ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(named).unwrap_or_default().to_lowercase();
    let shows_blocks = locale.contains("utf-8") || locale.contains("utf8");
    if shows_blocks && io::stdout().is_terminal() { Bars::Blocks } else { Bars::Ascii }
}
