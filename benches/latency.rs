//! How long from the moment Hermes's COMMIT returns to the moment the message is at the server, and at what cost.
//!
//! `cargo bench --bench latency -- --help` lists the options. A writer process and a recording sink on loopback are
//! the same for all subjects; the subjects take turns within each round, so that the machine's moods hit all alike.
//! No figure is printed unless every row of every run arrived once, complete and in order.

mod support;

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use serde_json::json;

use support::hermes_db::Layout;
use support::options::Common;
use support::report::{self, Spread, Table, all_ms, cell};
use support::rig::Template;
use support::run::{self, Busy};
use support::script::ROWS_PER_TURN;
use support::stage::Plan;
use support::subject::Subject;
use support::writer::Pace;
use support::{fault, scratch};

/// Commit-to-POST latency, cost and memory of the mirror and of its baselines, side by side.
///
/// Takes about three minutes with the defaults.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo bench --bench latency --")]
struct Options {
    #[command(flatten)]
    common: Common,
    /// Rows each subject carries in one round; rounded up to whole turns of four.
    #[arg(long, default_value_t = 160, value_parser = clap::value_parser!(u32).range(4..=100_000))]
    rows: u32,
    /// Rows of earlier conversation.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=800_000))]
    history: u32,
    /// Who runs, by name or letter; all that are there by default.
    #[arg(long, value_enum, value_delimiter = ',')]
    subjects: Vec<Subject>,
    /// Shortest pause before a row, in ms.
    #[arg(long, default_value_t = 10)]
    shortest_gap_ms: u64,
    /// Longest pause before a row, in ms.
    #[arg(long, default_value_t = 90)]
    longest_gap_ms: u64,
    /// What every fsync and fdatasync of the writer takes longer, in ms; needs strace.
    #[arg(long, default_value_t = 0)]
    fsync_delay_ms: u64,
}

fn main() -> ExitCode {
    scratch::main("latency", measure)
}

fn measure(options: &Options, scratch: &Path) -> Result<()> {
    let mut options = options.clone();
    let common = &mut options.common;
    if common.smoke {
        common.rounds = 1;
        options.rows = options.rows.min(12);
        (options.shortest_gap_ms, options.longest_gap_ms) = (2, 20);
        if common.fault.is_none() && options.fsync_delay_ms == 0 {
            fault::prove_that_each_is_noticed()?;
        }
    }
    if options.subjects.is_empty() {
        options.subjects = Subject::available();
    }
    options.rows = options.rows.next_multiple_of(ROWS_PER_TURN);
    let gaps = [options.shortest_gap_ms, options.longest_gap_ms].map(Duration::from_millis);
    let delay = Duration::from_millis(options.fsync_delay_ms);
    let mut plan = Plan::new(&options.common, gaps.into());
    plan.fsync_delay = Some(delay).filter(|delay| !delay.is_zero());
    let layout = Layout { history: options.history, ..Layout::FRESH };
    let template = Template::create(scratch, layout, plan.seed)?;
    let mut cases: Vec<Case> =
        std::iter::once(None).chain(options.subjects.iter().copied().map(Some)).map(Case::new).collect();
    for round in 1..=options.common.rounds {
        for case in &mut cases {
            let name = case.name();
            eprintln!("round {round} of {}: {name}", options.common.rounds);
            let run = run::busy(scratch, &template, &plan, case.subject, (options.rows, Pace::Scheduled));
            case.busy.add(run.with_context(|| format!("{name}, round {round}"))?);
        }
    }
    publish(&cases, &options)
}

/// All rounds of one subject; or of the writer alone, where there is none.
struct Case {
    subject: Option<Subject>,
    busy: Busy,
}

impl Case {
    fn new(subject: Option<Subject>) -> Self {
        Self { subject, busy: Busy::default() }
    }

    fn name(&self) -> &'static str {
        self.subject.map_or("nobody (the writer alone)", Subject::label)
    }

    fn p50(cases: &[Self], subject: Option<Subject>, of: fn(&Busy) -> &[Duration]) -> Option<f64> {
        let case = cases.iter().find(|case| case.subject == subject)?;
        Spread::of(of(&case.busy)).ok()?.map(|spread| spread.p50)
    }
}

fn publish(cases: &[Case], options: &Options) -> Result<()> {
    let mut table = Table::new(&[
        "",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "max ms",
        "x floor",
        "CPU us/row",
        "RSS MB",
        "COMMIT p50",
        "x alone",
    ]);
    let floor = Case::p50(cases, Some(Subject::Floor), |busy| &busy.latencies);
    let alone = Case::p50(cases, None, |busy| &busy.commits);
    let mut subjects = Vec::new();
    for case in cases {
        let busy = &case.busy;
        let (latency, commit) = (Spread::of(&busy.latencies)?, Spread::of(&busy.commits)?);
        let to_floor = latency.zip(floor).map(|(spread, floor)| spread.p50 / floor);
        let to_alone = commit.zip(alone).map(|(spread, alone)| spread.p50 / alone);
        let spread = |of: fn(&Spread) -> f64| cell(latency.as_ref().map(of), 3);
        table.row(
            case.name(),
            [
                spread(|s| s.p50),
                spread(|s| s.p90),
                spread(|s| s.p99),
                spread(|s| s.max),
                cell(to_floor, 2),
                cell(busy.cpu_us_per_row(), 0),
                cell(report::megabytes(busy.memory), 1),
                cell(commit.map(|s| s.p50), 3),
                cell(to_alone, 2),
            ],
        );
        subjects.push(json!({
            "subject": case.subject, "label": case.name(), "latency_ms": latency, "commit_ms": commit,
            "p50_to_floor": to_floor, "commit_p50_to_alone": to_alone, "early": busy.early,
            "cpu_us_per_row": busy.cpu_us_per_row(), "memory": busy.memory,
            "latencies_ms": all_ms(&busy.latencies), "commits_ms": all_ms(&busy.commits),
        }));
    }
    let mut text = table.to_string();
    notes(&mut text, cases, options)?;
    let figures = json!({
        "rows": options.rows, "history": options.history, "fsync_delay_ms": options.fsync_delay_ms,
        "gaps_ms": [options.shortest_gap_ms, options.longest_gap_ms], "subjects": subjects,
    });
    report::publish("latency", &options.common, &text, &figures)
}

fn notes(text: &mut String, cases: &[Case], options: &Options) -> Result<()> {
    writeln!(
        text,
        "From COMMIT's return to the complete request at a sink on loopback; {} rounds of {} rows after {} rows of \
         history, all of them checked: each row once, complete, in order.",
        options.common.rounds, options.rows, options.history
    )?;
    if options.fsync_delay_ms > 0 {
        writeln!(text, "Each sync of the writer took {} ms longer.", options.fsync_delay_ms)?;
    }
    let p50 = |subject| Case::p50(cases, Some(subject), |busy| &busy.latencies);
    if let (Some(mirror), Some(polled)) = (p50(Subject::Attach), p50(Subject::Forwarder)) {
        writeln!(text, "hermes-mirror's p50 is {:.0} times below the polling loop's.", polled / mirror)?;
    }
    let early: u32 = cases.iter().map(|case| case.busy.early).sum();
    if early > 0 {
        writeln!(
            text,
            "{early} requests were complete before the writer was back from COMMIT; they count as 0."
        )?;
    }
    Ok(())
}
