//! One subject, one run: busy, to see how fast and at what cost rows arrive; or idle, to see what waiting costs.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::proc::{Memory, Used};
use super::rig::Template;
use super::sink::Sink;
use super::stage::{Plan, Stage};
use super::subject::Subject;
use super::writer::Pace;

/// What a busy run gave.
#[derive(Clone, Default)]
pub struct Busy {
    /// From COMMIT's return to the complete request, row by row.
    pub latencies: Vec<Duration>,
    /// Rows whose POST was there before the writer came back from COMMIT; they count as zero.
    pub early: u32,
    /// How long each COMMIT took.
    pub commits: Vec<Duration>,
    /// From the return of the first COMMIT to that of the last.
    pub writing: Duration,
    /// From the return of the last COMMIT to the arrival of its row.
    pub lag: Duration,
    /// What the subject used from the first measured row to the last one's arrival.
    pub used: Option<Used>,
    pub memory: Option<Memory>,
}

impl Busy {
    /// Adds a round; the longest lag and the most memory count.
    pub fn add(&mut self, round: Self) {
        self.latencies.extend(round.latencies);
        self.commits.extend(round.commits);
        self.early += round.early;
        self.writing += round.writing;
        self.lag = self.lag.max(round.lag);
        self.memory = self.memory.max(round.memory);
        self.used = match (self.used, round.used) {
            (Some(before), Some(more)) => Some(before + more),
            (before, more) => before.or(more),
        };
    }

    /// CPU time for each row.
    pub fn cpu_us_per_row(&self) -> Option<f64> {
        let rows = f64::from(u32::try_from(self.latencies.len()).ok().filter(|rows| *rows > 0)?);
        self.used.map(|used| used.cpu.as_secs_f64() * 1e6 / rows)
    }
}

/// What a quiet window cost.
#[derive(Clone, Copy)]
pub struct Idle {
    pub window: Duration,
    pub used: Option<Used>,
    pub memory: Option<Memory>,
}

/// `rows` more rows with this subject running, or with none.
pub fn busy(
    scratch: &Path,
    template: &Template,
    plan: &Plan,
    subject: Option<Subject>,
    (rows, pace): (u32, Pace),
) -> Result<Busy> {
    let mut stage = Stage::set(scratch, template, plan, Sink::start()?)?;
    stage.open(subject, None)?;
    let before = stage.usage();
    let commits = stage.write(stage.written + rows, pace)?;
    stage.wait()?;
    let used = stage.used_since(before);
    let memory = stage.memory();
    let mut busy =
        Busy { commits: commits.iter().map(|commit| commit.took).collect(), used, memory, ..Busy::default() };
    if let [first, .., last] = commits.as_slice() {
        busy.writing = last.at.saturating_sub(first.at);
    }
    if let Some((_, firsts)) = stage.check()? {
        for commit in commits {
            let first = Stage::arrival(&firsts, commit.seq)?;
            busy.early += u32::from(first < commit.at);
            busy.lag = first.saturating_sub(commit.at);
            busy.latencies.push(busy.lag);
        }
    }
    Ok(busy)
}

/// A quiet window, `settle` after the last row. That the subject was awake all the time shows in the turn written
/// after it.
pub fn idle(
    scratch: &Path,
    template: &Template,
    plan: &Plan,
    subject: Subject,
    (settle, window): (Duration, Duration),
) -> Result<Idle> {
    let mut stage = Stage::set(scratch, template, plan, Sink::start()?)?;
    stage.open(Some(subject), None)?;
    thread::sleep(settle);
    let before = stage.usage();
    let begun = Instant::now();
    thread::sleep(window);
    let used = stage.used_since(before);
    let window = begun.elapsed();
    let memory = stage.memory();
    stage.write_turns(1)?;
    stage.check()?;
    Ok(Idle { window, used, memory })
}
