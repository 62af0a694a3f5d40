//! The writer: a process that commits one message at a time, as Hermes does, and the handle to command it.

use std::io::{BufRead, BufReader, Write, stdout};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rusqlite::Connection;

use super::child::Guard;
use super::hermes_db::{self, now};
use super::role::{Part, Role};
use super::script;

/// Hermes asks for a passive checkpoint after so many writes.
const CHECKPOINT_EVERY: u32 = 50;
/// Beyond its schedule a writer is given this long before it counts as stuck.
const PATIENCE: Duration = Duration::from_mins(1);

/// One commit, as the writer saw it.
#[derive(Clone, Copy, Debug)]
pub struct Commit {
    /// Number of the row, from 1.
    pub seq: u32,
    /// Wall clock since the epoch when COMMIT returned.
    pub at: Duration,
    /// How long COMMIT took.
    pub took: Duration,
}

/// How fast to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// One row straight after the other.
    AtOnce,
    /// With the script's gaps.
    Scheduled,
}

/// A running writer.
pub struct Writer {
    guard: Guard,
    input: std::process::ChildStdin,
    output: Receiver<String>,
    longest_gap: Duration,
}

impl Writer {
    /// Starts it and waits until it holds the database open, -wal and -shm in place.
    pub fn start(part: &Part, fsync_delay: Option<Duration>) -> Result<Self> {
        let command = Part { role: Role::Writer, ..part.clone() }.command()?;
        let guard = Guard::spawn(&mut match fsync_delay {
            Some(delay) => with_slow_fsync(&command, delay),
            None => command,
        })?;
        let (input, stdout) = {
            let mut child = guard.child();
            (child.stdin.take().context("no pipe")?, child.stdout.take().context("no pipe")?)
        };
        let (sender, output) = channel();
        thread::Builder::new().name("writer-output".to_owned()).spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.take_while(|line| sender.send(line.clone()).is_ok()).for_each(drop);
        })?;
        let writer = Self { guard, input, output, longest_gap: part.longest_gap };
        match writer.line(PATIENCE)?.as_str() {
            "ready" => Ok(writer),
            other => bail!("the writer began with {other:?}"),
        }
    }

    /// Writes rows `first..=last` and reports each commit. Returns when all are written.
    pub fn write(&mut self, first: u32, last: u32, pace: Pace) -> Result<Vec<Commit>> {
        let name = if pace == Pace::AtOnce { "at-once" } else { "scheduled" };
        writeln!(self.input, "{name} {first} {last}").context("the writer is gone")?;
        self.input.flush()?;
        let rows = (last + 1).saturating_sub(first);
        let patience = PATIENCE + self.longest_gap * rows;
        (0..rows).map(|_| parse(&self.line(patience)?)).collect()
    }

    fn line(&self, patience: Duration) -> Result<String> {
        self.output.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => anyhow::anyhow!("the writer said nothing for {patience:?}"),
            RecvTimeoutError::Disconnected => {
                anyhow::anyhow!("the writer ended early: {:?}", self.guard.ended())
            }
        })
    }
}

/// The same command on a disk whose every sync takes so much longer. Only these calls are stopped at.
fn with_slow_fsync(command: &Command, delay: Duration) -> Command {
    let mut slow = Command::new("strace");
    slow.args(["-f", "--seccomp-bpf", "-qqq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e"]);
    slow.arg(format!("inject=fsync,fdatasync:delay_enter={}", delay.as_micros()));
    slow.arg(command.get_program()).args(command.get_args());
    slow.stdin(Stdio::piped()).stdout(Stdio::piped());
    slow
}

fn parse(line: &str) -> Result<Commit> {
    let mut numbers = line.split(' ').map(str::parse::<u64>);
    let mut next =
        || numbers.next().with_context(|| format!("a short report: {line:?}"))?.map_err(anyhow::Error::from);
    let seq = u32::try_from(next()?)?;
    Ok(Commit { seq, at: Duration::from_nanos(next()?), took: Duration::from_nanos(next()?) })
}

/// The writer's own side. Reports go out after the last row: nothing but the database is touched while it writes.
pub fn play(part: &Part, orders: &Receiver<String>) -> Result<()> {
    let conn = hermes_db::open_as_hermes(&part.db)?;
    // A first read brings -wal and -shm into being.
    conn.query_row("SELECT count(*) FROM sessions", [], |_| Ok(()))?;
    println!("ready");
    let mut written = 0;
    for order in orders {
        let mut words = order.split(' ');
        let scheduled = words.next() == Some("scheduled");
        let first: u32 = words.next().context("from where?")?.parse()?;
        let last: u32 = words.next().context("to where?")?.parse()?;
        let mut commits = Vec::new();
        for seq in first..=last {
            if scheduled {
                thread::sleep(script::gap(part.seed, seq, part.shortest_gap, part.longest_gap));
            }
            commits.push(commit_row(&conn, part, seq)?);
            written += 1;
            if written % CHECKPOINT_EVERY == 0 {
                conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
            }
        }
        let mut report = stdout().lock();
        for commit in commits {
            writeln!(report, "{} {} {}", commit.seq, commit.at.as_nanos(), commit.took.as_nanos())?;
        }
        report.flush()?;
    }
    Ok(())
}

fn commit_row(conn: &Connection, part: &Part, seq: u32) -> Result<Commit> {
    let line = script::line("row", part.seed, seq);
    let session = script::session(script::session_of(seq, part.sessions));
    conn.execute_batch("BEGIN IMMEDIATE")?;
    hermes_db::insert(conn, &session, &line, now().as_secs_f64())?;
    let begun = Instant::now();
    conn.execute_batch("COMMIT")?;
    let at = now();
    Ok(Commit { seq, at, took: begun.elapsed() })
}
