//! `tail`: a session's items on the terminal.

use std::io::{self, ErrorKind, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use hermes_mirror::config::default_sources;
use hermes_mirror::event::Item;
use hermes_mirror::hermes::discovery::Terminal;
use hermes_mirror::ids::HermesSessionId;
use hermes_mirror::pipeline::tail::{Shown, tail};
use hermes_mirror::printable::printable;
use hermes_mirror::stage::search::Target;
use serde_json::{Value, json};

use super::exit;
use super::output::safe_json;
use super::resolve::{load_if_any, resolve};

/// How much of an item stands on its line, in characters.
const LINE: usize = 400;

const NOTES: &str = "\
It reads the database alone, from the session's first message on, and writes nothing: neither a server nor a \
running mirror is asked. Secrets are masked as [transform.egress] says.

A line has the row, the kind and the text of one item, cut where it is long. With --json it is an object with all of \
it: session, turn, row, place (which of the row's items), kind, and for the kind `user` text, images and meta, for \
`assistant` and `reasoning` text, for `tool_call` call_id, name and arguments, for `tool_output` call_id and output, \
for `compaction` summary. Keys may be added; none is taken away.

Exit codes:
  0  stopped by a signal, or nobody reads on
  1  failed
  2  usage or configuration";

/// The arguments of `tail`.
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct Tail {
    /// The Hermes session [default: the newest that began in this directory, waited for if there is none]
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Path of state.db [default: `db` in [source] of the configuration, else where Hermes has it]
    #[arg(long, value_name = "PATH")]
    db: Option<PathBuf>,
    /// Print one JSON object an item
    #[arg(long)]
    json: bool,
    /// The configuration [default: pipeline.toml, where there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Shows items until a signal.
pub fn run(arguments: Tail) -> anyhow::Result<()> {
    let mut config = load_if_any(arguments.config.as_deref())?;
    config.source.db = arguments.db.or(config.source.db);
    let config = resolve(config)?.config;
    let target = match arguments.session {
        Some(session) => Target::Session(HermesSessionId::new(session)),
        None => Target::Terminal(Terminal {
            workspace: std::env::current_dir().context("this directory can't be named")?,
            launch_epoch_s: 0.0,
            sources: default_sources(),
        }),
    };
    let mut written = Ok(());
    let show = |shown: Shown<'_>| {
        let line = if arguments.json { safe_json(&object(&shown).to_string()) } else { line(&shown) };
        let mut stdout = io::stdout().lock();
        written = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { anyhow::Ok(tail(&config, target, show, exit::stop_signal()?).await?) })?;
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write to stdout"),
        _ => Ok(()),
    }
}

/// One item on one line.
fn line(shown: &Shown<'_>) -> String {
    let (kind, text) = match shown.item {
        Item::Reasoning { text } => ("thinks", text.clone()),
        Item::User { text, images, meta } => {
            let images =
                if images.is_empty() { String::new() } else { format!("[{} images] ", images.len()) };
            (if *meta { "meta" } else { "user" }, images + text)
        }
        Item::Assistant { text } => ("assistant", text.clone()),
        Item::FunctionCall { name, arguments, .. } => ("call", format!("{name} {arguments}")),
        Item::FunctionCallOutput { output, .. } => ("output", output.clone()),
        Item::Compaction(compaction) => ("compaction", compaction.summary.clone()),
    };
    let mut head: String = text.chars().take(LINE).collect();
    if head.len() < text.len() {
        head.push('…');
    }
    format!("{:>7}  {kind:<10}  {}", shown.row, printable(&head))
}

/// One item with all there is to it.
fn object(shown: &Shown<'_>) -> Value {
    let (kind, rest) = match shown.item {
        Item::Reasoning { text } => ("reasoning", json!({"text": text})),
        Item::User { text, images, meta } => ("user", json!({"text": text, "images": images, "meta": meta})),
        Item::Assistant { text } => ("assistant", json!({"text": text})),
        Item::FunctionCall { call_id, name, arguments } => {
            ("tool_call", json!({"call_id": call_id, "name": name, "arguments": arguments}))
        }
        Item::FunctionCallOutput { call_id, output } => {
            ("tool_output", json!({"call_id": call_id, "output": output}))
        }
        Item::Compaction(compaction) => ("compaction", json!({"summary": compaction.summary})),
    };
    let Shown { session, turn, row, place, .. } = shown;
    let mut object = json!({"session": session, "turn": turn, "row": row, "place": place, "kind": kind});
    if let (Some(object), Value::Object(rest)) = (object.as_object_mut(), rest) {
        object.extend(rest);
    }
    object
}
