//! What waiting costs, when nothing happens for a long time: CPU, wake-ups, disk writes and memory.
//!
//! `cargo bench --bench idle -- --help` lists the options. No figure is printed unless the turn that is written after
//! the quiet window arrived, once, complete and in order.

mod support;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use serde_json::json;

use support::hermes_db::Layout;
use support::options::Common;
use support::report::{self, Table, cell, ms};
use support::rig::Template;
use support::run::{self, Idle};
use support::scratch;
use support::stage::Plan;
use support::subject::Subject;

/// What the mirror and its baselines cost while nothing happens.
///
/// Takes about five minutes with the defaults.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo bench --bench idle --")]
struct Options {
    #[command(flatten)]
    common: Common,
    /// Rows of earlier conversation, all sessions together.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(0..=800_000))]
    history: u32,
    /// Sessions of the cases with many.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(2..=999))]
    sessions: u32,
    /// Length of the quiet window, in s.
    #[arg(long, default_value_t = 30)]
    window_s: u64,
    /// How long after the last row it begins, in s: beyond the mirror's own `release_after_ms`.
    #[arg(long, default_value_t = 7)]
    settle_s: u64,
}

fn main() -> ExitCode {
    scratch::main("idle", measure)
}

fn measure(options: &Options, scratch: &Path) -> Result<()> {
    let mut options = options.clone();
    // One long window says more than several short ones.
    options.common.rounds = 1;
    let (mut settle, mut window) =
        (Duration::from_secs(options.settle_s), Duration::from_secs(options.window_s));
    if options.common.smoke {
        (options.history, options.sessions) = (400, 3);
        (settle, window) = (Duration::from_millis(100), Duration::from_millis(300));
    }
    let plan = Plan::new(&options.common, (Duration::ZERO, Duration::ZERO));
    let many = [Subject::Attach, Subject::AttachPoll].map(|subject| (subject, options.sessions));
    let all = Subject::available().into_iter().filter(|subject| *subject != Subject::Floor);
    let mut cases = Vec::new();
    for (subject, sessions) in many.into_iter().chain(all.map(|subject| (subject, 1))) {
        let case = Case { subject, sessions };
        eprintln!("idle: {}", case.name());
        let layout = Layout { sessions, history: options.history, ..Layout::FRESH };
        let template = Template::create(scratch, layout, plan.seed)?;
        let idle = run::idle(scratch, &template, &plan, subject, (settle, window));
        cases.push((case, idle.with_context(|| case.name())?));
    }
    publish(&cases, &options, window)
}

#[derive(Clone, Copy)]
struct Case {
    subject: Subject,
    sessions: u32,
}

impl Case {
    fn name(self) -> String {
        let sessions = if self.sessions == 1 { "session" } else { "sessions" };
        format!("{}, {} {sessions}", self.subject.label(), self.sessions)
    }
}

fn publish(cases: &[(Case, Idle)], options: &Options, window: Duration) -> Result<()> {
    let mut table = Table::new(&["", "CPU ms/s", "wakes/s", "disk bytes/s", "RSS MB"]);
    let mut figures = Vec::new();
    for (case, idle) in cases {
        let per_second = |value: f64| value / idle.window.as_secs_f64();
        let count = |count: u64| u32::try_from(count).map_or(f64::INFINITY, f64::from);
        let cpu = idle.used.map(|used| per_second(ms(used.cpu)));
        let wakes = idle.used.map(|used| per_second(count(used.wakes)));
        let disk = idle.used.map(|used| per_second(count(used.disk)));
        let name = case.name();
        table.row(
            &name,
            [cell(cpu, 3), cell(wakes, 1), cell(disk, 0), cell(report::megabytes(idle.memory), 1)],
        );
        figures.push(json!({
            "subject": case.subject, "label": name, "sessions": case.sessions, "cpu_ms_per_s": cpu,
            "wakes_per_s": wakes, "disk_bytes_per_s": disk, "memory": idle.memory,
        }));
    }
    let text = format!(
        "{table}Over {window:?} with {} rows of history. Wakes are the voluntary context switches of all threads.",
        options.history
    );
    let figures = json!({ "history": options.history, "window_s": window.as_secs_f64(), "cases": figures });
    report::publish("idle", &options.common, &text, &figures)
}
