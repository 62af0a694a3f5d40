//! How long from the moment Hermes's COMMIT returns to the moment the message is at the server, and at what cost.
//!
//! `cargo bench --bench latency -- --help` lists the options. A writer process and a recording sink on loopback are
//! the same for all subjects; the subjects take turns within each round, so that the machine's moods hit all alike.
//! No figure is printed unless every row of every run arrived once, complete and in order.

#![allow(clippy::disallowed_methods, reason = "databases and scratch files of the benchmark's own")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use support::options::Options;
use support::report::{self, Case};
use support::rig::Template;
use support::{check, child, role, run};

fn main() -> ExitCode {
    let ended = role::play_if_asked().and_then(|played| if played { Ok(()) } else { measure() });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("latency: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<()> {
    if Options::asked_for_tests() {
        return Ok(());
    }
    let options = Options::from_command_line();
    check::prove()?;
    // Below target/, which is on a disk where fsync means something; /tmp often is not.
    let parent = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(&parent)?;
    let scratch = tempfile::Builder::new()
        .prefix("latency-")
        .tempdir_in(&parent)
        .context("make a scratch directory")?;
    child::end_all_on_signal(scratch.path().to_owned())?;
    let mut cases: Vec<Case> =
        std::iter::once(None).chain(options.subjects.iter().copied().map(Some)).map(Case::new).collect();
    busy_rounds(scratch.path(), &options, &mut cases)?;
    idle_windows(scratch.path(), &options, &mut cases)?;
    report::publish(&cases, &options)
}

fn busy_rounds(scratch: &Path, options: &Options, cases: &mut [Case]) -> Result<()> {
    let template = Template::create(scratch, options.busy_history, options.seed)?;
    for round in 1..=options.rounds {
        for case in &mut *cases {
            let name = case.name();
            eprintln!("round {round} of {}: {name}", options.rounds);
            let run = run::busy(scratch, &template, options, case.subject);
            case.add(run.with_context(|| format!("{name}, round {round}"))?);
        }
    }
    Ok(())
}

fn idle_windows(scratch: &Path, options: &Options, cases: &mut [Case]) -> Result<()> {
    let Some(window) = options.quiet_window() else { return Ok(()) };
    eprintln!("filling a database with {} rows of history", options.history);
    let template = Template::create(scratch, options.history, options.seed)?;
    for case in cases {
        let Some(subject) = case.subject else { continue };
        let name = case.name();
        eprintln!("idle: {name}");
        let run = run::idle(scratch, &template, options, subject, window);
        case.add_idle(run.with_context(|| format!("{name}, idle"))?);
    }
    Ok(())
}
