//! How fast what has piled up is carried over, and whether a burst is kept up with.
//!
//! `cargo bench --bench backlog -- --help` lists the options. The yardstick sends the very requests that the mirror
//! sent, from a loop that does nothing else; both take turns. No figure is printed unless every row of every run
//! arrived once, complete and in order.

mod support;

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use serde_json::{Value, json};

use support::child::Guard;
use support::hermes_db::Layout;
use support::options::Common;
use support::proc::{Memory, Used};
use support::report::{self, Spread, Table, cell, median};
use support::rig::Template;
use support::role::{Part, Role};
use support::run::{self, Busy};
use support::script::ROWS_PER_TURN;
use support::sink::{Arrival, Sink};
use support::stage::{Plan, Stage};
use support::subject::Subject;
use support::writer::Pace;
use support::{bare, fault, scratch};

/// Drain rate of a backlog, in one conversation and in many, and a burst.
///
/// Takes about three minutes with the defaults.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo bench --bench backlog --")]
struct Options {
    #[command(flatten)]
    common: Common,
    /// Rows that have piled up, all sessions together.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(4..=900_000))]
    rows: u32,
    /// Conversations of the case with many.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(2..=999))]
    sessions: u32,
    /// Rows written without a pause.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(4..=900_000))]
    burst: u32,
}

fn main() -> ExitCode {
    scratch::main("backlog", measure)
}

fn measure(options: &Options, scratch: &Path) -> Result<()> {
    let mut options = options.clone();
    if options.common.smoke {
        options.common.rounds = 1;
        (options.rows, options.sessions, options.burst) = (120, 3, 40);
        if options.common.fault.is_none() {
            fault::prove_that_each_is_noticed()?;
        }
    }
    options.burst = options.burst.next_multiple_of(ROWS_PER_TURN);
    let plan = Plan::new(&options.common, (Duration::ZERO, Duration::ZERO));
    let (mut drains, mut alone, mut beside) =
        ([1, options.sessions].map(Drains::new), Busy::default(), Busy::default());
    for round in 1..=options.common.rounds {
        let of = format!("round {round} of {}", options.common.rounds);
        eprintln!("{of}: a burst of {} rows", options.burst);
        let fresh = Template::create(scratch, Layout::FRESH, plan.seed)?;
        let rows = (options.burst, Pace::AtOnce);
        alone.add(run::busy(scratch, &fresh, &plan, None, rows)?);
        beside.add(run::busy(scratch, &fresh, &plan, Some(Subject::Attach), rows).context("a burst")?);
        for drains in &mut drains {
            eprintln!("{of}: {} rows in {} conversations", options.rows, drains.sessions);
            let layout = Layout { sessions: drains.sessions, backlog: options.rows, ..Layout::FRESH };
            let template = Template::create(scratch, layout, plan.seed)?;
            let run = drain(scratch, &template, &plan);
            drains.runs.push(run.with_context(|| format!("a backlog, {of}"))?);
        }
    }
    publish(&drains, [&alone, &beside], &options)
}

/// One backlog carried over, and its requests sent by the bare loop.
struct Drain {
    mirror: Duration,
    bare: Duration,
    requests: usize,
    used: Option<Used>,
    memory: Option<Memory>,
}

fn drain(scratch: &Path, template: &Template, plan: &Plan) -> Result<Drain> {
    let mut stage = Stage::set(scratch, template, plan, Sink::start()?)?;
    stage.start(Subject::Attach, None)?;
    stage.wait_until_mirroring()?;
    let before = stage.usage();
    stage.wait()?;
    let used = stage.used_since(before);
    let memory = stage.memory();
    let Some((arrivals, _)) = stage.check()? else { bail!("a drain without a subject") };
    let bare = send_again(&stage.part, &arrivals, plan)?;
    Ok(Drain { mirror: span(&arrivals)?, bare, requests: arrivals.len(), used, memory })
}

/// From the first request to the last.
fn span(arrivals: &[Arrival]) -> Result<Duration> {
    let times = arrivals.iter().map(|arrival| arrival.at);
    let (first, last) = times.clone().min().zip(times.max()).context("nothing arrived")?;
    Ok(last.saturating_sub(first))
}

/// The same requests from the bare loop to a sink of its own.
fn send_again(part: &Part, arrivals: &[Arrival], plan: &Plan) -> Result<Duration> {
    let sink = Sink::start()?;
    let part = Part { role: Role::Bare, sink: sink.address(), ..part.clone() };
    bare::write_requests(&part.requests, arrivals)?;
    let guard = Guard::spawn(&mut part.command()?)?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = guard.ended()? {
            break status;
        }
        ensure!(begun.elapsed() < plan.patience * 2, "the bare loop did not come to an end");
        std::thread::sleep(Duration::from_millis(20));
    };
    ensure!(status.success(), "the bare loop failed ({status})");
    let sent = sink.arrivals();
    ensure!(sent.len() == arrivals.len(), "the bare loop sent {} of {} requests", sent.len(), arrivals.len());
    span(&sent)
}

/// All backlogs of one number of conversations.
struct Drains {
    sessions: u32,
    runs: Vec<Drain>,
}

impl Drains {
    fn new(sessions: u32) -> Self {
        Self { sessions, runs: Vec::new() }
    }

    fn row(&self, table: &mut Table, rows: u32) -> Value {
        let median = |of: &dyn Fn(&Drain) -> Option<f64>| median(self.runs.iter().filter_map(of).collect());
        let rows = f64::from(rows);
        let rate = |took: Duration| rows / took.as_secs_f64();
        let requests = median(&|run| u32::try_from(run.requests).ok().map(f64::from));
        let mirror = median(&|run| Some(rate(run.mirror)));
        let bare = median(&|run| Some(rate(run.bare)));
        // Of each pair that ran one after the other.
        let part = median(&|run| Some(run.bare.as_secs_f64() / run.mirror.as_secs_f64()));
        let cpu = median(&|run| run.used.map(|used| used.cpu.as_secs_f64() * 1e6 / rows));
        let memory = self.runs.iter().filter_map(|run| run.memory).max();
        let label = format!("{rows} rows, {} conversations", self.sessions);
        table.row(
            &label,
            [
                cell(mirror, 0),
                cell(bare, 0),
                cell(part, 2),
                cell(requests, 0),
                cell(cpu, 0),
                cell(report::megabytes(memory), 1),
            ],
        );
        json!({
            "sessions": self.sessions, "rows": rows, "requests": requests, "rows_per_s": mirror,
            "bare_rows_per_s": bare, "part_of_bare": part, "cpu_us_per_row": cpu, "memory": memory,
        })
    }
}

fn publish(drains: &[Drains], [alone, beside]: [&Busy; 2], options: &Options) -> Result<()> {
    let rounds = f64::from(options.common.rounds);
    let mut table = Table::new(&["", "rows/s", "bare rows/s", "part", "requests", "CPU us/row", "RSS MB"]);
    let drains: Vec<Value> = drains.iter().map(|drains| drains.row(&mut table, options.rows)).collect();
    let mut text = table.to_string();
    let rate = |busy: &Busy| f64::from(options.burst - 1) * rounds / busy.writing.as_secs_f64();
    let slowed = beside.writing.as_secs_f64() / alone.writing.as_secs_f64();
    let commits = [Spread::of(&alone.commits)?, Spread::of(&beside.commits)?];
    let p50 = commits.map(|spread| cell(spread.map(|s| s.p50), 3));
    let lag = beside.lag.as_secs_f64() * 1e3;
    writeln!(
        text,
        "A burst of {} rows: the writer alone {:.0} rows/s, with the mirror {:.0} ({slowed:.2} times as long); COMMIT \
         p50 {} and {} ms; the last row arrived {lag:.1} ms after its commit.",
        options.burst,
        rate(alone),
        rate(beside),
        p50[0],
        p50[1]
    )?;
    writeln!(text, "{} rounds, all rows checked: each once, complete, in order.", options.common.rounds)?;
    let figures = json!({
        "drains": drains,
        "burst": {
            "rows": options.burst, "alone_rows_per_s": rate(alone), "beside_rows_per_s": rate(beside),
            "slowed": slowed, "longest_lag_ms": lag, "commit_ms": { "alone": commits[0], "beside": commits[1] },
            "latency_ms": Spread::of(&beside.latencies)?,
        },
    });
    report::publish("backlog", &options.common, &text, &figures)
}
