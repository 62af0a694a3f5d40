//! `dead-letters`: what a server would not take, for a person to look at, send again or throw away.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use hermes_mirror::state::dir;
use hermes_mirror::state::ledger::{self, DeadLetter};

use super::exit::Misuse;
use super::output;
use super::resolve::load_if_any;

mod replay;
mod shown;

const NOTES: &str = "\
A mirror started by `attach` keeps its ledger in its bridge directory, unless its configuration has `dir` in \
[state]: name that directory with --state-dir.

With --json, `list` prints an array of letters and `show` one letter, with its `body`. `replay` prints an array \
of {id, conversation, outcome, item, reason}, where the outcome is `found`, `delivered`, `refused`, `failed` or \
`not_tried`. `purge` prints {purged: [id, …]}. Keys may be added; none is taken away.

Exit codes:
  0  ok
  1  failed, or a letter was not delivered
  2  usage or configuration";

const REPLAY_NOTES: &str = "\
Each letter is first looked for in its conversation, and sent only if it is not there. It then stands at the \
conversation's end, in the turn it belongs to. The server takes a message of the person's that is sent again for \
a new one: do it while no message waits on the web page.

While a mirror feeds the conversation, nothing is sent: stop it first.

Exit codes:
  0  all of them are in their conversations
  1  failed, or a letter was not delivered
  2  usage or configuration";

/// The arguments of `dead-letters`.
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct DeadLetters {
    #[command(flatten)]
    place: Place,
    /// What to do
    #[command(subcommand)]
    action: Action,
}

/// Where the ledger is, and how to print.
#[derive(Debug, Args)]
struct Place {
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// The configuration [default: pipeline.toml, where there is one]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The directory of the ledger [default: `dir` in [state] of the configuration, else
    /// `$XDG_STATE_HOME/hermes-mirror`, else `~/.local/state/hermes-mirror`]
    #[arg(long, global = true, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List all, newest last: number, when, conversation, row, kind, reason
    List,
    /// Show all there is to one, its body last: it is a piece of the transcript
    Show {
        /// The letter's number
        #[arg(value_name = "ID")]
        id: i64,
    },
    /// Look for letters in their conversations, and send them again if they are not there
    #[command(after_help = REPLAY_NOTES)]
    Replay {
        #[command(flatten)]
        which: Which,
        /// Address of the server, where it is not the configuration's: a letter goes to no other
        #[arg(long, value_name = "URL")]
        base_url: Option<String>,
    },
    /// Throw letters away
    Purge {
        #[command(flatten)]
        which: Which,
    },
}

/// Some letters or all.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// Numbers of letters
    #[arg(value_name = "ID")]
    ids: Vec<i64>,
    /// All that are listed
    #[arg(long)]
    all: bool,
}

/// Does what is asked for.
pub fn run(arguments: &DeadLetters) -> anyhow::Result<ExitCode> {
    let Place { json, config, state_dir } = &arguments.place;
    let config = load_if_any(config.as_deref())?;
    let directory = state_dir.clone().map_or_else(|| dir::root(&config.state), Ok)?;
    let letters = Letters { found: ledger::DeadLetters::open(&directory)?, directory };
    match &arguments.action {
        Action::List => output::print(list(&letters, *json)?.as_bytes())?,
        Action::Show { id } => output::print(show(&letters.get(*id)?, *json)?.as_bytes())?,
        Action::Replay { which, base_url } => {
            let chosen = letters.choose(which)?;
            return replay::run(letters.found.as_ref(), chosen, config, base_url.as_deref(), *json);
        }
        Action::Purge { which } => purge(&letters, which, *json)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The letters of a state directory, which may have no ledger.
struct Letters {
    directory: PathBuf,
    found: Option<ledger::DeadLetters>,
}

impl Letters {
    fn all(&self) -> anyhow::Result<Vec<DeadLetter>> {
        Ok(self.found.as_ref().map(ledger::DeadLetters::list).transpose()?.unwrap_or_default())
    }

    fn get(&self, id: i64) -> anyhow::Result<DeadLetter> {
        let found = self.found.as_ref().map(|found| found.get(id)).transpose()?.flatten();
        found.ok_or_else(|| {
            let message = format!("{} has no dead letter {id}", self.directory.display());
            Misuse::new(message, "see `hermes-mirror dead-letters list` for those it has").into()
        })
    }

    /// Those that are named, each once; all of them exist, or nothing is done to any.
    fn choose(&self, which: &Which) -> anyhow::Result<Vec<DeadLetter>> {
        if which.all {
            return self.all();
        }
        let mut ids = which.ids.clone();
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().map(|id| self.get(id)).collect()
    }
}

fn list(letters: &Letters, json: bool) -> anyhow::Result<String> {
    let all = letters.all()?;
    if json {
        return output::json(&all.iter().map(shown::Entry::new).collect::<Vec<_>>());
    }
    Ok(match (&letters.found, all.as_slice()) {
        (None, _) => {
            format!("no dead letters: {} has no ledger\n", letters.directory.display())
        }
        (Some(_), []) => "no dead letters\n".to_owned(),
        (Some(_), some) => shown::table(some),
    })
}

fn show(letter: &DeadLetter, json: bool) -> anyhow::Result<String> {
    if json { output::json(&shown::Whole::new(letter)) } else { shown::page(letter) }
}

fn purge(letters: &Letters, which: &Which, json: bool) -> anyhow::Result<()> {
    #[derive(serde::Serialize)]
    struct Purged {
        purged: Vec<i64>,
    }
    let mut purged = Vec::new();
    for letter in letters.choose(which)? {
        let found = letters.found.as_ref().context("there is no ledger")?;
        if found.remove(letter.id)? {
            purged.push(letter.id);
        }
    }
    let text = match (json, purged.len()) {
        (true, _) => output::json(&Purged { purged })?,
        (false, 1) => "1 dead letter thrown away\n".to_owned(),
        (false, count) => format!("{count} dead letters thrown away\n"),
    };
    output::print(text.as_bytes())
}
