//! One subject, one run: busy, to see how fast and at what cost rows arrive; or idle, to see what waiting costs.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::check;
use super::options::Options;
use super::proc::{Memory, Usage, Used};
use super::rig::{Rig, Template};
use super::role::Part;
use super::script::{ROWS_PER_TURN, tag};
use super::sink::Sink;
use super::subject::{Running, Subject};
use super::writer::{Commit, Pace, Writer};

/// How long a subject may take to start, or for the last row.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a subject that is waited for is looked at.
const GLANCE: Duration = Duration::from_millis(100);
/// How long a repetition is waited for: two polls of the slowest subject, and a little.
const REPETITION: Duration = Duration::from_millis(900);

/// What a busy run gave.
#[derive(Default)]
pub struct Busy {
    /// From COMMIT's return to the complete request, row by row.
    pub latencies: Vec<Duration>,
    /// Rows whose POST was there before the writer came back from COMMIT; they count as zero.
    pub early: u32,
    /// How long each COMMIT took.
    pub commits: Vec<Duration>,
    /// What the subject used from the first measured row to the last one's arrival.
    pub used: Option<Used>,
    pub memory: Option<Memory>,
}

/// What a quiet window cost.
#[derive(Clone, Copy)]
pub struct Idle {
    pub window: Duration,
    pub used: Option<Used>,
    pub memory: Option<Memory>,
}

/// The scheduled rows with this subject running, or with none.
pub fn busy(
    scratch: &Path,
    template: &Template,
    options: &Options,
    subject: Option<Subject>,
) -> Result<Busy> {
    let mut stage = Stage::set(scratch, template, options, subject)?;
    let before = stage.usage();
    let last = stage.written + options.rows;
    let commits = stage.write(last, Pace::Scheduled)?;
    stage.wait_for(last)?;
    let used = used(before, stage.usage());
    let memory = stage.memory();
    let took = commits.iter().map(|commit| commit.took).collect();
    let mut busy = Busy { commits: took, used, memory, ..Busy::default() };
    if let Some(firsts) = stage.check()? {
        for commit in commits {
            let index = usize::try_from(commit.seq)?.checked_sub(1).context("rows count from 1")?;
            let first = firsts.get(index).context("a row without arrival")?;
            busy.early += u32::from(*first < commit.at);
            busy.latencies.push(first.saturating_sub(commit.at));
        }
    }
    Ok(busy)
}

/// A quiet window with a long history. That the subject was awake all the time shows in the turn written after it.
pub fn idle(
    scratch: &Path,
    template: &Template,
    options: &Options,
    subject: Subject,
    window: Duration,
) -> Result<Idle> {
    let mut stage = Stage::set(scratch, template, options, Some(subject))?;
    thread::sleep(options.settle());
    let before = stage.usage();
    let begun = Instant::now();
    thread::sleep(window);
    let used = used(before, stage.usage());
    let window = begun.elapsed();
    let memory = stage.memory();
    let last = stage.written + ROWS_PER_TURN;
    stage.write(last, Pace::AtOnce)?;
    stage.wait_for(last)?;
    stage.check()?;
    Ok(Idle { window, used, memory })
}

fn used(before: Option<Usage>, after: Option<Usage>) -> Option<Used> {
    Some(after?.since(&before?))
}

/// Everyone in place, and a first turn already through.
struct Stage {
    // In this order dropped: subject, writer, sink, directory.
    subject: Option<Running>,
    writer: Writer,
    sink: Sink,
    _rig: Rig,
    /// Last row written.
    written: u32,
    /// Arrivals already looked at.
    seen: usize,
}

impl Stage {
    fn set(scratch: &Path, template: &Template, options: &Options, subject: Option<Subject>) -> Result<Self> {
        let rig = Rig::new(scratch, template)?;
        let sink = Sink::start()?;
        let part: Part = rig.part(options, &sink);
        let writer = Writer::start(&part)?;
        let subject = subject.map(|subject| subject.start(&rig, &part)).transpose()?;
        let mut stage = Self { subject, writer, sink, _rig: rig, written: 0, seen: 0 };
        stage.write(ROWS_PER_TURN, Pace::AtOnce)?;
        stage.wait_for(ROWS_PER_TURN)?;
        Ok(stage)
    }

    fn write(&mut self, last: u32, pace: Pace) -> Result<Vec<Commit>> {
        let commits = self.writer.write(self.written + 1, last, pace)?;
        self.written = last;
        Ok(commits)
    }

    /// Until row `seq` has arrived; at once where there is nobody to bring it.
    fn wait_for(&mut self, seq: u32) -> Result<()> {
        let Some(subject) = &self.subject else { return Ok(()) };
        let begun = Instant::now();
        while !self.sink.wait_for(&tag("row", seq), &mut self.seen, GLANCE)? {
            subject.check_alive()?;
            ensure!(
                begun.elapsed() < PATIENCE,
                "{} did not arrive within {PATIENCE:?}{}",
                tag("row", seq),
                subject.last_words()
            );
        }
        Ok(())
    }

    /// When each row arrived, once it is certain that none comes again.
    fn check(&self) -> Result<Option<Vec<Duration>>> {
        let Some(subject) = &self.subject else { return Ok(None) };
        thread::sleep(REPETITION);
        subject.check_alive()?;
        check::first_arrivals(&self.sink.arrivals(), self.written).map(Some)
    }

    fn usage(&self) -> Option<Usage> {
        Usage::of(self.subject.as_ref()?.id())
    }

    fn memory(&self) -> Option<Memory> {
        Memory::of(self.subject.as_ref()?.id())
    }
}
