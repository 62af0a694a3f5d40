//! Figures, as a table for people and as JSON for pictures.

use std::fmt;
use std::path::Path;
use std::time::Duration;
use std::{env, fs, thread};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::{Value, json};

use super::hermes_db::now;
use super::options::Common;
use super::proc::Memory;

/// A distribution, in ms.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
}

impl Spread {
    /// Nothing where there are no samples.
    pub fn of(samples: &[Duration]) -> Result<Option<Self>> {
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

/// A table whose first column is a label, and the others figures.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With these headings; the first column has none.
    pub fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|heading| (*heading).to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, label: &str, cells: impl IntoIterator<Item = String>) {
        self.rows.push(std::iter::once(label.to_owned()).chain(cells).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if column == 0 {
                    write!(f, "{cell:<width$}")?;
                } else {
                    write!(f, "  {cell:>width$}")?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// A figure, where there is one.
pub fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

/// Resident memory now, in MB.
pub fn megabytes(memory: Option<Memory>) -> Option<f64> {
    memory.map(|memory| f64::from(memory.now_kb) / 1024.0)
}

/// The same in ms.
pub fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The same in ms, to a tenth of a microsecond, which is all that a wall clock is good for.
pub fn all_ms(samples: &[Duration]) -> Vec<f64> {
    samples.iter().map(|sample| (ms(*sample) * 1e4).round() / 1e4).collect()
}

/// The value in the middle; nothing where there is none.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Prints the text, and writes the figures where that is asked for.
pub fn publish(name: &str, common: &Common, text: &str, figures: &Value) -> Result<()> {
    if common.smoke || cfg!(debug_assertions) {
        println!("{name}: a smoke run or a debug build: these figures say only that everything works.");
    }
    println!("{text}");
    common.json.as_deref().map_or(Ok(()), |path| write_json(path, name, common, figures))
}

fn write_json(path: &Path, name: &str, common: &Common, figures: &Value) -> Result<()> {
    // Where the figures went is no part of how they came about.
    let mut arguments = env::args().skip(1).filter(|argument| argument != "--bench");
    let mut command = Vec::new();
    while let Some(argument) = arguments.next() {
        if argument == "--json" { drop(arguments.next()) } else { command.push(argument) }
    }
    let document = json!({
        "benchmark": name,
        "command": format!("cargo bench --bench {name} -- {}", command.join(" ")),
        "taken_at_s": now().as_secs(),
        "machine": machine(),
        "debug_build": cfg!(debug_assertions),
        "smoke": common.smoke,
        "rounds": common.rounds,
        "seed": common.seed,
        "figures": figures,
    });
    fs::write(path, format!("{document:#}\n")).with_context(|| format!("write {}", path.display()))
}

fn machine() -> Value {
    let line = |file: &str, name: &str| {
        let text = fs::read_to_string(file).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.split_once(':'))?;
        Some(line.1.trim().to_owned())
    };
    json!({
        "os": env::consts::OS,
        "architecture": env::consts::ARCH,
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned()),
        "cpu": line("/proc/cpuinfo", "model name"),
        "cores": thread::available_parallelism().ok(),
        "memory": line("/proc/meminfo", "MemTotal"),
        // What else ran meanwhile shows here.
        "load": fs::read_to_string("/proc/loadavg").ok().map(|text| text.trim().to_owned()),
        "sqlite": rusqlite::version(),
    })
}
