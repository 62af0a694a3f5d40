//! `sessions`: what there is to mirror.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use hermes_mirror::config::{Config, default_sources};
use hermes_mirror::hermes::{Open, Overview, Session, SourceError};
use hermes_mirror::printable::printable;
use hermes_mirror::stage::deliver::now_ms;
use hermes_mirror::state::dir;
use hermes_mirror::state::ledger::{Followed, followed};
use serde_json::{Value, json};

use super::exit::Obstacle;
use super::output;
use super::resolve::{load_if_any, resolve, short};
use super::table::{self, Cut};
use super::when::ago;
use super::world::database::{source, trouble};

/// How many are listed where not all are asked for.
const MOST: usize = 20;

/// A session counts as live for so long after its last message, in s.
const LATELY_S: f64 = 300.0;

const NOTES: &str = "\
Listed are those that a mirror may find by itself: sessions of a terminal, with messages, and of those that a \
compaction continues in another session the last. LIVE says `turn` where a turn is open (and was not silent for \
longer than `reassert_for_s` in [turns]), `yes` where the last message is less than 5 minutes old. MIRRORED TO is what \
the ledger in the state directory knows; mirrors that `attach` started keep their own. The id is for `tail --session`, \
and for `session` in [[mirror]].

On a terminal the lines are cut to its width; elsewhere they are whole. With --json it prints an array of {session, \
title, cwd, source, started_ms, last_ms, messages, live, turn_open, mirrors: [{server, conversation}]}. Keys may be \
added; none is taken away.

Exit codes:
  0  ok, also where there is none
  1  failed
  2  usage or configuration";

/// The arguments of `sessions`.
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct Sessions {
    /// List every session, not the 20 of terminals in which something was said last
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Path of state.db [default: `db` in [source] of the configuration, else where Hermes has it]
    #[arg(long, value_name = "PATH")]
    db: Option<PathBuf>,
    /// The configuration [default: pipeline.toml, where there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// A session as it is listed.
struct Entry {
    overview: Overview,
    turn_open: bool,
    live: bool,
    mirrors: Vec<Followed>,
}

/// Prints the list.
pub fn run(arguments: Sessions) -> anyhow::Result<()> {
    let mut config = load_if_any(arguments.config.as_deref())?;
    config.source.db = arguments.db.or(config.source.db);
    let resolved = resolve(config)?;
    let (config, database) = (resolved.config, resolved.database.path);
    let mut source = source(&config, &database);
    let found = source.open().and_then(|open| list(open, &config, arguments.all));
    let (mut entries, left_out) = found.map_err(|error| {
        let finding = trouble(&error);
        Obstacle::new(finding.message, finding.help.unwrap_or_default())
    })?;
    match dir::root(&config.state).and_then(|directory| followed(&directory, &database)) {
        Ok(known) => {
            for entry in &mut entries {
                let is_its = |one: &&Followed| one.session == entry.overview.session.id;
                entry.mirrors = known.iter().filter(is_its).cloned().collect();
            }
        }
        Err(error) => tracing::warn!(%error, "it is not known what is mirrored"),
    }
    let text = if arguments.json {
        output::json(&entries.iter().map(Entry::object).collect::<Vec<_>>())?
    } else if entries.is_empty() {
        nothing(&database, left_out)
    } else {
        shown(&entries, left_out)
    };
    output::print(text.as_bytes())
}

/// The sessions to list, and how many there are beside them.
fn list(open: &Open, config: &Config, all: bool) -> Result<(Vec<Entry>, usize), SourceError> {
    let sources = default_sources();
    let is_terminals = |session: &Session| {
        !session.is_side_session()
            && session.is_from(&sources)
            && session.has_rows
            && !session.is_compacted_away()
    };
    let mut overviews = open.overview(|session| all || is_terminals(session))?;
    if !all {
        overviews.truncate(MOST);
    }
    #[expect(clippy::cast_precision_loss, reason = "ms since the epoch, and settings of at most a week")]
    let (now_s, silent_s) = (now_ms() as f64 / 1_000.0, config.turns.reassert_for_s as f64);
    let mut entries = Vec::new();
    for overview in overviews {
        let age_s = now_s - overview.last_at;
        let turn_open = age_s < silent_s && open.has_open_turn(&overview)?;
        let lately = overview.messages > 0 && age_s < LATELY_S;
        entries.push(Entry { turn_open, live: turn_open || lately, overview, mirrors: Vec::new() });
    }
    let count = usize::try_from(open.facts()?.sessions).unwrap_or(usize::MAX);
    let left_out = count.saturating_sub(entries.len());
    Ok((entries, left_out))
}

fn nothing(database: &Path, left_out: usize) -> String {
    let name = printable(&database.to_string_lossy());
    if left_out == 0 {
        return format!("no sessions in {name} yet: say something in Hermes\n");
    }
    format!("no sessions of a terminal in {name}: say something in Hermes; --all lists {left_out} more\n")
}

/// How wide the table is at most where no terminal says: a title may hold anything.
const WIDEST: usize = 400;

/// The table, cut to the terminal where stdout is one.
fn shown(entries: &[Entry], left_out: usize) -> String {
    let head = ["SESSION", "TITLE", "CWD", "SOURCE", "AGE", "MESSAGES", "LIVE", "MIRRORED TO"];
    let home = etcetera::home_dir().ok();
    let now = now_ms();
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(entries.iter().map(|entry| entry.cells(home.as_deref(), now)));
    let terminal = terminal_size::terminal_size_of(io::stdout());
    let width = terminal.map_or(WIDEST, |(width, _)| width.0.into());
    table::fit(&mut rows, &[(1, Cut::End), (2, Cut::Start), (7, Cut::End), (0, Cut::End)], width);
    let mut text = table::aligned(&rows);
    if left_out > 0 && terminal.is_some() {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{left_out} more with --all");
    }
    text
}

impl Entry {
    fn cells(&self, home: Option<&Path>, now_ms: i64) -> Vec<String> {
        let Overview { session, title, messages, .. } = &self.overview;
        let mirrors: Vec<&str> = self.mirrors.iter().map(|one| one.conversation.as_str()).collect();
        let live = match (self.turn_open, self.live) {
            (true, _) => "turn",
            (false, true) => "yes",
            (false, false) => "",
        };
        let cells = [
            session.id.as_str(),
            title.as_deref().unwrap_or_default(),
            &session.cwd.as_deref().map(|cwd| short(Path::new(cwd), home)).unwrap_or_default(),
            &session.source,
            &ago(now_ms - ms(self.overview.last_at)),
            &messages.to_string(),
            live,
            &mirrors.join(", "),
        ];
        // Of no cell there is nothing, so that a script finds each at its place.
        cells.map(|cell| if cell.is_empty() { "-".to_owned() } else { printable(cell) }).to_vec()
    }

    fn object(&self) -> Value {
        let Overview { session, title, messages, last_at, .. } = &self.overview;
        let mirror = |one: &Followed| json!({"server": one.server, "conversation": one.conversation});
        json!({
            "session": session.id,
            "title": title,
            "cwd": session.cwd,
            "source": session.source,
            "started_ms": ms(session.started_at),
            "last_ms": ms(*last_at),
            "messages": messages,
            "live": self.live,
            "turn_open": self.turn_open,
            "mirrors": self.mirrors.iter().map(mirror).collect::<Vec<_>>(),
        })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a time out of range is none, and saturates")]
fn ms(s: f64) -> i64 {
    (s * 1_000.0) as i64
}
