//! Whether cost and memory stay flat as things grow: history, mirrored sessions, and sessions that nobody mirrors.
//!
//! `cargo bench --bench scale -- --help` lists the options. The sizes take turns within each round. No figure is
//! printed unless every row of every run arrived once, complete and in order.

mod support;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use serde_json::{Value, json};

use support::hermes_db::{FOREIGN_ROWS, Layout};
use support::options::Common;
use support::report::{self, Spread, Table, cell, median, ms};
use support::rig::Template;
use support::run::{self, Busy};
use support::scratch;
use support::script::ROWS_PER_TURN;
use support::sink::Sink;
use support::stage::{Plan, Stage};
use support::subject::Subject;
use support::writer::Pace;

/// Cost, memory, latency and start of the mirror at many sizes of the database.
///
/// Takes about eight minutes with the defaults, and some 2 GB of disk.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo bench --bench scale --")]
struct Options {
    #[command(flatten)]
    common: Common,
    /// Rows carried in one run; rounded up to whole turns of four.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(4..=100_000))]
    rows: u32,
    /// Rows of earlier conversation.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000, 10_000, 100_000, 1_000_000])]
    history: Vec<u32>,
    /// Sessions that are mirrored.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10, 50, 200])]
    sessions: Vec<u32>,
    /// Sessions of the same file that nobody mirrors, of 16 rows each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100, 10_000, 22_000])]
    foreign: Vec<u32>,
    /// Shortest pause before a row, in ms.
    #[arg(long, default_value_t = 5)]
    shortest_gap_ms: u64,
    /// Longest pause before a row, in ms.
    #[arg(long, default_value_t = 25)]
    longest_gap_ms: u64,
}

fn main() -> ExitCode {
    scratch::main("scale", measure)
}

fn measure(options: &Options, scratch: &Path) -> Result<()> {
    let mut options = options.clone();
    if options.common.smoke {
        options.common.rounds = 1;
        // Not a turn for each of three sessions.
        options.rows = 8;
        (options.history, options.sessions, options.foreign) = (vec![100], vec![1, 3], vec![20]);
        (options.shortest_gap_ms, options.longest_gap_ms) = (1, 5);
    }
    options.rows = options.rows.next_multiple_of(ROWS_PER_TURN);
    let gaps = [options.shortest_gap_ms, options.longest_gap_ms].map(Duration::from_millis);
    let plan = Plan::new(&options.common, gaps.into());
    let mut cases = cases(&options);
    for round in 1..=options.common.rounds {
        for case in &mut cases {
            eprintln!("round {round} of {}: {}", options.common.rounds, case.name());
            let template = Template::create(scratch, case.layout, plan.seed)?;
            let about = || format!("{}, round {round}", case.name());
            let rows = (options.rows, Pace::Scheduled);
            let busy =
                run::busy(scratch, &template, &plan, Some(Subject::Attach), rows).with_context(about)?;
            let start = start(scratch, &template, &plan).with_context(about)?;
            case.busy.add(busy);
            case.starts.push(start);
        }
    }
    publish(&cases, &options)
}

/// From the start of the process to `mirroring` of every session. That it was true shows in a turn of each.
fn start(scratch: &Path, template: &Template, plan: &Plan) -> Result<Duration> {
    let mut stage = Stage::set(scratch, template, plan, Sink::start()?)?;
    let begun = Instant::now();
    stage.start(Subject::Attach, None)?;
    stage.wait_until_mirroring()?;
    let took = begun.elapsed();
    stage.write_turns(1)?;
    stage.check()?;
    Ok(took)
}

/// One size of the database.
struct Case {
    /// What grows: `history`, `sessions` or `foreign`.
    axis: &'static str,
    layout: Layout,
    busy: Busy,
    starts: Vec<Duration>,
}

impl Case {
    fn size(&self) -> u32 {
        match self.axis {
            "history" => self.layout.history,
            "sessions" => self.layout.sessions,
            _ => self.layout.foreign,
        }
    }

    fn name(&self) -> String {
        match self.axis {
            "history" => format!("{} rows of history", self.size()),
            "sessions" => format!("{} sessions mirrored", self.size()),
            _ => format!("{} rows of {} other sessions", self.size() * FOREIGN_ROWS, self.size()),
        }
    }
}

fn cases(options: &Options) -> Vec<Case> {
    let fresh = Layout::FRESH;
    let history = options.history.iter().map(|&history| ("history", Layout { history, ..fresh }));
    let sessions = options.sessions.iter().map(|&sessions| {
        // What a session has before the first row that counts is the same for any number of them.
        ("sessions", Layout { sessions, history: sessions * ROWS_PER_TURN, ..fresh })
    });
    let foreign = options.foreign.iter().map(|&foreign| ("foreign", Layout { foreign, ..fresh }));
    let all = history.chain(sessions).chain(foreign);
    all.map(|(axis, layout)| Case { axis, layout, busy: Busy::default(), starts: Vec::new() }).collect()
}

fn publish(cases: &[Case], options: &Options) -> Result<()> {
    let headings = ["", "CPU us/row", "wakes/row", "p50 ms", "p99 ms", "RSS MB", "start ms"];
    let mut table = Table::new(&headings);
    let mut figures: Vec<Value> = Vec::new();
    for case in cases {
        let busy = &case.busy;
        let rows = f64::from(u32::try_from(busy.latencies.len())?);
        let wakes = busy.used.and_then(|used| Some(f64::from(u32::try_from(used.wakes).ok()?) / rows));
        let latency = Spread::of(&busy.latencies)?;
        let start = median(case.starts.iter().copied().map(ms).collect());
        table.row(
            &case.name(),
            [
                cell(busy.cpu_us_per_row(), 0),
                cell(wakes, 1),
                cell(latency.map(|s| s.p50), 3),
                cell(latency.map(|s| s.p99), 3),
                cell(report::megabytes(busy.memory), 1),
                cell(start, 0),
            ],
        );
        figures.push(json!({
            "axis": case.axis, "size": case.size(), "label": case.name(), "latency_ms": latency,
            "cpu_us_per_row": busy.cpu_us_per_row(), "wakes_per_row": wakes, "memory": busy.memory,
            "start_ms": start,
        }));
    }
    let text = format!(
        "{table}{} rounds of {} rows at each size, all of them checked: each row once, complete, in order. \
         The start is from the process's to the last session's `mirroring`.",
        options.common.rounds, options.rows
    );
    let figures = json!({
        "rows": options.rows, "gaps_ms": [options.shortest_gap_ms, options.longest_gap_ms], "cases": figures,
    });
    report::publish("scale", &options.common, &text, &figures)
}
