//! Everyone in place for one run, and the moves that runs are made of.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::check;
use super::fault::Fault;
use super::options::Common;
use super::proc::{Memory, Usage, Used};
use super::rig::{Rig, Template};
use super::role::Part;
use super::script::{self, ROWS_PER_TURN, tag};
use super::sink::{Arrival, Sink};
use super::subject::{Front, Running, Subject};
use super::writer::{Commit, Pace, Writer};

/// How often a subject that is waited for is looked at.
const GLANCE: Duration = Duration::from_millis(100);
/// How long a repetition is waited for: two polls of the slowest subject, and a little.
const REPETITION: Duration = Duration::from_millis(900);

/// How a run is made.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// Shortest and longest pause before a row.
    pub gaps: (Duration, Duration),
    /// How long a row is waited for.
    pub patience: Duration,
    /// What each of the writer's syncs takes more than the disk needs.
    pub fsync_delay: Option<Duration>,
    /// What is to go wrong.
    pub fault: Option<Fault>,
}

impl Plan {
    /// As the command line wants it.
    pub fn new(common: &Common, gaps: (Duration, Duration)) -> Self {
        let Common { seed, fault, .. } = *common;
        Self { seed, gaps, patience: common.patience(), fsync_delay: None, fault }
    }
}

/// Writer, sink and subject in a world of their own.
pub struct Stage {
    // In this order dropped: subject, writer, sink, directory.
    subject: Option<Running>,
    writer: Writer,
    pub sink: Sink,
    rig: Rig,
    pub part: Part,
    plan: Plan,
    /// Last row written.
    pub written: u32,
    /// Last row waited for.
    awaited: u32,
    /// Arrivals already looked at.
    seen: usize,
}

impl Stage {
    /// Writer and sink; no subject yet.
    pub fn set(scratch: &Path, template: &Template, plan: &Plan, sink: Sink) -> Result<Self> {
        let rig = Rig::new(scratch, template)?;
        let part = rig.part(plan.seed, plan.gaps, &sink);
        rig.place_cursors(&part)?;
        let writer = Writer::start(&part, plan.fsync_delay)?;
        let written = template.layout.backlog;
        Ok(Self { subject: None, writer, sink, rig, part, plan: plan.clone(), written, awaited: 0, seen: 0 })
    }

    /// The subject at work, if there is to be one, and a first turn of each session already through.
    pub fn open(&mut self, subject: Option<Subject>, front: Option<&Front>) -> Result<()> {
        if let Some(subject) = subject {
            self.start(subject, front)?;
        }
        self.write_turns(1)?;
        match self.plan.fault {
            None => {}
            Some(Fault::Vanish) => fs::remove_file(&self.part.db)?,
            Some(fault) => self.sink.break_down(fault),
        }
        Ok(())
    }

    /// Starts the subject.
    pub fn start(&mut self, subject: Subject, front: Option<&Front>) -> Result<()> {
        self.subject = Some(subject.start(&self.rig, &self.part, front)?);
        Ok(())
    }

    /// Waits until the mirror has said of every session that it mirrors it.
    pub fn wait_until_mirroring(&self) -> Result<()> {
        let Some(subject) = &self.subject else { bail!("nobody is there to mirror anything") };
        let begun = Instant::now();
        let wanted = usize::try_from(self.part.sessions)?;
        while subject.mirroring() < wanted {
            subject.check_alive()?;
            ensure!(
                begun.elapsed() < self.plan.patience,
                "{} of {wanted} sessions were taken up within {:?}{}",
                subject.mirroring(),
                self.plan.patience,
                subject.last_words()
            );
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Writes whole turns of each session at once and waits for them.
    pub fn write_turns(&mut self, turns: u32) -> Result<()> {
        self.write(self.written + turns * ROWS_PER_TURN * self.part.sessions, Pace::AtOnce)?;
        self.wait()
    }

    /// Writes the rows up to `last`.
    pub fn write(&mut self, last: u32, pace: Pace) -> Result<Vec<Commit>> {
        let commits = self.writer.write(self.written + 1, last, pace)?;
        self.written = last;
        Ok(commits)
    }

    /// Until all rows that were written have arrived; at once where there is nobody to bring them.
    pub fn wait(&mut self) -> Result<()> {
        let Some(subject) = &self.subject else { return Ok(()) };
        // Conversations are independent: the newest row of each has to come, of those not waited for before.
        let first = self.awaited.max(self.written.saturating_sub(ROWS_PER_TURN * self.part.sessions)) + 1;
        let newest = (first..=self.written).map(|seq| (script::session_of(seq, self.part.sessions), seq));
        let mut due: BTreeSet<u32> = newest.collect::<BTreeMap<_, _>>().into_values().collect();
        let mut begun = Instant::now();
        let mut seen = self.seen;
        loop {
            self.sink.wait_for(&mut due, &mut self.seen, GLANCE)?;
            let Some(missing) = due.first() else { break };
            subject.check_alive()?;
            ensure!(self.part.db.exists(), "the database is gone: {}", self.part.db.display());
            // A backlog takes its time; what counts is that something moves.
            if seen != self.seen {
                (seen, begun) = (self.seen, Instant::now());
            }
            ensure!(
                begun.elapsed() < self.plan.patience,
                "{} did not arrive at the sink within {:?}{}",
                tag("row", *missing),
                self.plan.patience,
                subject.last_words()
            );
        }
        self.awaited = self.written;
        Ok(())
    }

    /// All that arrived, and when each row did first, once it is certain that none comes again. Nothing where there
    /// is nobody to bring them.
    pub fn check(&self) -> Result<Option<(Vec<Arrival>, Vec<Duration>)>> {
        let Some(subject) = &self.subject else { return Ok(None) };
        thread::sleep(REPETITION);
        subject.check_alive()?;
        ensure!(self.part.db.exists(), "the database is gone: {}", self.part.db.display());
        let arrivals = self.sink.arrivals();
        let firsts = check::first_arrivals(&arrivals, self.written, self.part.sessions)?;
        Ok(Some((arrivals, firsts)))
    }

    /// When row `seq` arrived, of those that [`Self::check`] gave.
    pub fn arrival(firsts: &[Duration], seq: u32) -> Result<Duration> {
        let index = usize::try_from(seq)?.checked_sub(1).context("rows count from 1")?;
        firsts.get(index).copied().context("a row without arrival")
    }

    /// What the subject has used since it started.
    pub fn usage(&self) -> Option<Usage> {
        Usage::of(self.subject.as_ref()?.id())
    }

    /// What it has used since `before`.
    pub fn used_since(&self, before: Option<Usage>) -> Option<Used> {
        Some(self.usage()?.since(&before?))
    }

    /// Its memory.
    pub fn memory(&self) -> Option<Memory> {
        Memory::of(self.subject.as_ref()?.id())
    }
}
