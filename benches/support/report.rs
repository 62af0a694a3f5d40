//! Figures: collected over the rounds, then shown as a table and, where asked for, as JSON.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;
use std::{env, fs, thread};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::json;

use super::hermes_db::now;
use super::options::Options;
use super::proc::{Memory, Used};
use super::run::{Busy, Idle};
use super::subject::Subject;

/// All rounds of one subject; or of the writer alone, where there is none.
pub struct Case {
    pub subject: Option<Subject>,
    busy: Busy,
    idle: Option<Idle>,
}

impl Case {
    /// Nothing yet.
    pub fn new(subject: Option<Subject>) -> Self {
        Self { subject, busy: Busy::default(), idle: None }
    }

    /// What messages and the table call it.
    pub fn name(&self) -> &'static str {
        self.subject.map_or("nobody (the writer alone)", Subject::label)
    }

    /// Adds a round.
    pub fn add(&mut self, round: Busy) {
        self.busy.latencies.extend(round.latencies);
        self.busy.commits.extend(round.commits);
        self.busy.early += round.early;
        self.busy.memory = self.busy.memory.max(round.memory);
        self.busy.used = match (self.busy.used, round.used) {
            (Some(a), Some(b)) => Some(Used { cpu: a.cpu + b.cpu, wakes: a.wakes + b.wakes }),
            (a, b) => a.or(b),
        };
    }

    /// Adds the quiet window.
    pub fn add_idle(&mut self, idle: Idle) {
        self.idle = Some(idle);
    }

    fn figures(&self) -> Result<Figures> {
        let rows = u32::try_from(self.busy.latencies.len())?;
        let per_second = |value: f64, idle: &Idle| value / idle.window.as_secs_f64();
        let idle_used = self.idle.as_ref().and_then(|idle| Some((idle, idle.used?)));
        Ok(Figures {
            label: self.name(),
            subject: self.subject,
            rows,
            early: self.busy.early,
            latency_ms: Spread::of(&self.busy.latencies)?,
            commit_ms: Spread::of(&self.busy.commits)?,
            cpu_us_per_row: self
                .busy
                .used
                .filter(|_| rows > 0)
                .map(|used| ms(used.cpu) * 1e3 / f64::from(rows)),
            idle_cpu_ms_per_s: idle_used.map(|(idle, used)| per_second(ms(used.cpu), idle)),
            idle_wakes_per_s: idle_used.map(|(idle, used)| {
                per_second(f64::from(u32::try_from(used.wakes).unwrap_or(u32::MAX)), idle)
            }),
            memory: self.busy.memory,
            idle_memory: self.idle.as_ref().and_then(|idle| idle.memory),
        })
    }
}

/// The figures of one subject.
#[derive(Serialize)]
struct Figures {
    label: &'static str,
    subject: Option<Subject>,
    rows: u32,
    early: u32,
    latency_ms: Option<Spread>,
    commit_ms: Option<Spread>,
    cpu_us_per_row: Option<f64>,
    idle_cpu_ms_per_s: Option<f64>,
    idle_wakes_per_s: Option<f64>,
    memory: Option<Memory>,
    idle_memory: Option<Memory>,
}

/// A distribution, in ms.
#[derive(Clone, Copy, Serialize)]
struct Spread {
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
}

impl Spread {
    fn of(samples: &[Duration]) -> Result<Option<Self>> {
        if samples.is_empty() {
            return Ok(None);
        }
        // Up to ten minutes, to three digits.
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 600_000_000_000, 3).context("histogram")?;
        for sample in samples {
            histogram.saturating_record(u64::try_from(sample.as_nanos())?.max(1));
        }
        let at = |quantile| ms(Duration::from_nanos(histogram.value_at_quantile(quantile)));
        Ok(Some(Self { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1.0) }))
    }
}

/// Prints the table, and writes the JSON where that is asked for.
pub fn publish(cases: &[Case], options: &Options) -> Result<()> {
    let figures = cases.iter().map(Case::figures).collect::<Result<Vec<_>>>()?;
    print!("{}", table(&figures, options)?);
    if let Some(path) = &options.json {
        write_json(path, cases, &figures, options)?;
    }
    Ok(())
}

fn table(figures: &[Figures], options: &Options) -> Result<String> {
    let mut text = String::new();
    if options.smoke || cfg!(debug_assertions) {
        writeln!(text, "A smoke run or a debug build: these figures say only that everything works.")?;
    }
    writeln!(
        text,
        "{:<26} {:>9} {:>9} {:>9} {:>9} {:>10} {:>11} {:>10} {:>9} {:>8} {:>11}",
        "",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "max ms",
        "CPU us/row",
        "idle ms/s",
        "wakes/s",
        "RSS MB",
        "peak MB",
        "COMMIT p50"
    )?;
    for line in figures {
        let spread = line.latency_ms;
        let memory = line.idle_memory.or(line.memory);
        let megabytes = |kb: u32| f64::from(kb) / 1024.0;
        writeln!(
            text,
            "{:<26} {:>9} {:>9} {:>9} {:>9} {:>10} {:>11} {:>10} {:>9} {:>8} {:>11}",
            line.label,
            cell(spread.map(|s| s.p50), 3),
            cell(spread.map(|s| s.p90), 3),
            cell(spread.map(|s| s.p99), 3),
            cell(spread.map(|s| s.max), 3),
            cell(line.cpu_us_per_row, 0),
            cell(line.idle_cpu_ms_per_s, 3),
            cell(line.idle_wakes_per_s, 1),
            cell(memory.map(|m| megabytes(m.now_kb)), 1),
            cell(line.memory.max(line.idle_memory).map(|m| megabytes(m.peak_kb)), 1),
            cell(line.commit_ms.map(|s| s.p50), 3),
        )?;
    }
    notes(&mut text, figures, options)?;
    Ok(text)
}

fn notes(text: &mut String, figures: &[Figures], options: &Options) -> Result<()> {
    writeln!(
        text,
        "\nFrom COMMIT's return to the complete request at a sink on loopback; {} rounds of {} rows after {} rows of \
         history, all of them checked: each row once, complete, in order.",
        options.rounds, options.rows, options.busy_history
    )?;
    if let Some(window) = options.quiet_window() {
        writeln!(text, "Idle over {window:?} with {} rows of history.", options.history)?;
    }
    let p50 = |subject| {
        figures
            .iter()
            .find(|line| line.subject == Some(subject))
            .and_then(|line| line.latency_ms)
            .map(|s| s.p50)
    };
    if let (Some(mirror), Some(floor)) = (p50(Subject::Attach), p50(Subject::Floor)) {
        writeln!(text, "hermes-mirror's p50 is {:.2} times the floor's.", mirror / floor)?;
    }
    if let (Some(mirror), Some(polled)) = (p50(Subject::Attach), p50(Subject::Forwarder)) {
        writeln!(text, "hermes-mirror's p50 is {:.0} times below the polling forwarder's.", polled / mirror)?;
    }
    let early: u32 = figures.iter().map(|line| line.early).sum();
    if early > 0 {
        writeln!(
            text,
            "{early} requests were complete before the writer was back from COMMIT; they count as 0."
        )?;
    }
    Ok(())
}

fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

fn write_json(path: &Path, cases: &[Case], figures: &[Figures], options: &Options) -> Result<()> {
    let all_ms = |samples: &[Duration]| samples.iter().copied().map(ms).collect::<Vec<_>>();
    let subjects = cases.iter().zip(figures).map(|(case, figures)| {
        json!({
            "figures": figures,
            "latencies_ms": all_ms(&case.busy.latencies),
            "commits_ms": all_ms(&case.busy.commits),
        })
    });
    let (shortest, longest) = options.gaps();
    let document = json!({
        "benchmark": "latency",
        "taken_at_s": now().as_secs(),
        "machine": machine(),
        "debug_build": cfg!(debug_assertions),
        "smoke": options.smoke,
        "options": {
            "rows": options.rows, "rounds": options.rounds, "history": options.history,
            "busy_history": options.busy_history, "seed": options.seed, "idle_s": options.idle_s,
            "settle_s": options.settle_s, "gaps_ms": [ms(shortest), ms(longest)],
        },
        "subjects": subjects.collect::<Vec<_>>(),
    });
    fs::write(path, format!("{document:#}\n")).with_context(|| format!("write {}", path.display()))
}

fn machine() -> serde_json::Value {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, name)| name);
    json!({
        "os": env::consts::OS,
        "architecture": env::consts::ARCH,
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned()),
        "cpu": model,
        "cores": thread::available_parallelism().ok(),
        "sqlite": rusqlite::version(),
    })
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
