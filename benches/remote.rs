//! What the first message after a pause pays when the server is far away.
//!
//! `cargo bench --bench remote -- --help` lists the options. The server stands behind a proxy that adds a round trip,
//! and speaks TLS. No figure is printed unless every row arrived once, complete and in order.

mod support;

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::json;

use support::delay::Delay;
use support::hermes_db::Layout;
use support::options::Common;
use support::report::{self, Spread, Table, all_ms, cell, ms};
use support::rig::Template;
use support::scratch;
use support::script::ROWS_PER_TURN;
use support::sink::Sink;
use support::stage::{Plan, Stage};
use support::subject::{Front, Subject};
use support::tls;
use support::writer::Pace;

/// Commit-to-POST latency of a turn's first message: in a busy conversation, and after a pause.
///
/// Takes about three minutes with the defaults.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo bench --bench remote --")]
struct Options {
    #[command(flatten)]
    common: Common,
    /// The round trip that is added, in ms.
    #[arg(long, default_value_t = 50)]
    rtt_ms: u64,
    /// The pause, in s: beyond the `keep_alive_ms` for which the mirror keeps a connection.
    #[arg(long, default_value_t = 6)]
    pause_s: u64,
    /// Turns of each kind in one round.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    turns: u32,
}

fn main() -> ExitCode {
    scratch::main("remote", measure)
}

fn measure(options: &Options, scratch: &Path) -> Result<()> {
    let mut options = options.clone();
    let mut pause = Duration::from_secs(options.pause_s);
    if options.common.smoke {
        options.common.rounds = 1;
        options.turns = 1;
        pause = Duration::from_millis(100);
    }
    let plan = Plan::new(&options.common, (Duration::ZERO, Duration::ZERO));
    let template = Template::create(scratch, Layout::FRESH, plan.seed)?;
    let mut cases = [
        Case::new("TCP", false, None),
        Case::new("TLS", true, None),
        Case::new("TLS, kept", true, Some(600_000)),
    ];
    for round in 1..=options.common.rounds {
        for case in &mut cases {
            eprintln!("round {round} of {}: {}", options.common.rounds, case.label);
            let done = case.round(scratch, &template, &plan, &options, pause);
            done.with_context(|| format!("{}, round {round}", case.label))?;
        }
    }
    publish(&cases, &options, pause)
}

/// One way to the server.
struct Case {
    label: &'static str,
    tls: bool,
    /// For how long the mirror keeps a connection, where that is not its default.
    keep_alive_ms: Option<u64>,
    busy: Vec<Duration>,
    paused: Vec<Duration>,
    connections: u32,
}

impl Case {
    fn new(label: &'static str, tls: bool, keep_alive_ms: Option<u64>) -> Self {
        Self { label, tls, keep_alive_ms, busy: Vec::new(), paused: Vec::new(), connections: 0 }
    }

    fn round(
        &mut self,
        scratch: &Path,
        template: &Template,
        plan: &Plan,
        options: &Options,
        pause: Duration,
    ) -> Result<()> {
        let authority = scratch.join("authority.pem");
        let sink = if self.tls { Sink::start_wrapped(tls::wrap(&authority)?)? } else { Sink::start()? };
        let far = Delay::start(sink.address(), Duration::from_millis(options.rtt_ms))?;
        let scheme = if self.tls { "https" } else { "http" };
        let base_url = format!("{scheme}://{}", far.address());
        let front = Front { base_url, authority, keep_alive_ms: self.keep_alive_ms };
        let mut stage = Stage::set(scratch, template, plan, sink)?;
        stage.open(Some(Subject::Attach), Some(&front))?;
        let mut firsts = Vec::new();
        // A first turn after which the connection is warm is through already.
        for pause in [Duration::from_millis(300), pause] {
            for _ in 0..options.turns {
                thread::sleep(pause);
                let commits = stage.write(stage.written + ROWS_PER_TURN, Pace::AtOnce)?;
                stage.wait()?;
                firsts.push(*commits.first().context("a turn without rows")?);
            }
        }
        let Some((_, arrivals)) = stage.check()? else { bail!("a run without a subject") };
        for (count, commit) in (0..).zip(firsts) {
            let latency = Stage::arrival(&arrivals, commit.seq)?.saturating_sub(commit.at);
            if count < options.turns { &mut self.busy } else { &mut self.paused }.push(latency);
        }
        self.connections += stage.sink.connections();
        Ok(())
    }
}

fn publish(cases: &[Case], options: &Options, pause: Duration) -> Result<()> {
    let mut table = Table::new(&["", "busy p50 ms", "after a pause", "paid", "connections"]);
    let mut figures = Vec::new();
    for case in cases {
        let (busy, paused) = (Spread::of(&case.busy)?, Spread::of(&case.paused)?);
        let paid = paused.zip(busy).map(|(paused, busy)| paused.p50 - busy.p50);
        table.row(
            case.label,
            [
                cell(busy.map(|s| s.p50), 1),
                cell(paused.map(|s| s.p50), 1),
                cell(paid, 1),
                case.connections.to_string(),
            ],
        );
        figures.push(json!({
            "label": case.label, "tls": case.tls, "keep_alive_ms": case.keep_alive_ms, "busy_ms": busy,
            "paused_ms": paused, "paid_ms": paid, "connections": case.connections,
            "busy_all_ms": all_ms(&case.busy), "paused_all_ms": all_ms(&case.paused),
        }));
    }
    let text = format!(
        "{table}A turn's first message, behind its `running` edge, with {} ms of round trip; the pause is {pause:?}. \
         \"kept\" is a connection kept for longer than the pause by `keep_alive_ms`.",
        options.rtt_ms
    );
    let figures =
        json!({ "rtt_ms": options.rtt_ms, "pause_ms": ms(pause), "turns": options.turns, "cases": figures });
    report::publish("remote", &options.common, &text, &figures)
}
