//! The whole thing on one machine: a pretend Hermes writes a real state.db, the real pipeline mirrors it into the embedded
//! server, and a polling loop reads the same database beside it, for comparison.
//!
//! Everything is in a directory that goes away with it. What happens is told in one channel to one loop, which keeps the
//! account; each part runs in a thread of its own, so that none of them waits for what is printed.

use std::future::Future;
use std::io;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::pipeline::PipelineError;
use crate::serve::{Event, ServeError};

mod baseline;
mod hermes;
mod parts;
mod script;
mod tally;

use hermes::{Hermes, Message};
use parts::{Parts, Place, Serving};
pub use script::Pace;
use script::{Act, Beat};
use tally::Tally;
pub use tally::{Kind, Score, Seen, Summary};

/// The one session.
const SESSION: &str = "20260101_090000_d3e0aa";
/// How long what was written may take to be shown.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the page stays current once all is shown.
const LAST_LOOK: Duration = Duration::from_millis(200);
/// What a compaction keeps: the first row, and the running turn's question, tool call and result.
const KEPT: (usize, usize) = (1, 3);

/// Why there is no demo.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A directory or a thread can't be had.
    #[error("cannot set the demo up: {0}")]
    System(#[from] io::Error),
    /// The server has failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The pretend Hermes has failed.
    #[error("the pretend Hermes cannot write its database: {0}")]
    Hermes(#[from] rusqlite::Error),
    /// The mirror has failed.
    #[error(transparent)]
    Mirror(#[from] PipelineError),
    /// A part of it has ended without a word.
    #[error("the {0} ended early")]
    Ended(&'static str),
}

impl DemoError {
    /// What can be done about it.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::System(_) | Self::Hermes(_) => {
                Some("it works in the directory for temporary files; TMPDIR names another")
            }
            Self::Serve(error) => error.help(),
            Self::Mirror(_) | Self::Ended(_) => None,
        }
    }
}

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many turns.
    pub turns: u32,
    /// How fast.
    pub pace: Pace,
    /// The server's port; 0 for a free one.
    pub port: u16,
}

/// What is told while it plays.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The page is there.
    Started(String),
    /// Something was shown, so long after its commit.
    Shown(Seen, Duration),
    /// The person took the last turn back.
    Undone,
}

/// What the parts tell.
enum Happened {
    Wrote {
        row: i64,
        at: Instant,
        message: Message,
    },
    Rewrote {
        summary: (i64, &'static str),
        again: Vec<(i64, Message)>,
        at: Instant,
    },
    Undone,
    Arrived {
        seen: Seen,
        at: Instant,
    },
    Polled {
        row: i64,
        at: Instant,
    },
    /// Wants a word once all that was written is seen.
    Settle(Sender<()>),
    Over(Result<(), DemoError>),
}

/// Tells the one who keeps the account.
#[derive(Clone)]
struct Teller(mpsc::UnboundedSender<Happened>);

impl Teller {
    fn tell(&self, happened: Happened) {
        // Nobody listens any more once it is over.
        let _ = self.0.send(happened);
    }
}

/// Plays until the script is over or `stop` is ready.
pub async fn run(
    options: Options,
    stop: impl Future<Output = ()>,
    mut report: impl FnMut(Report),
) -> Result<Summary, DemoError> {
    let directory = tempfile::Builder::new().prefix("hermes-mirror-demo-").tempdir()?;
    let (sender, mut told) = mpsc::unbounded_channel();
    let tell = Teller(sender);
    let place = Place(directory.path().to_owned());
    let server = Serving::start(options.port, &place, &tell).await?;
    report(Report::Started(format!("{}/c/{}", server.url, server.conversation)));
    let parts = Parts::start(options, &place, &server, &tell)?;
    let mut tally = Tally::default();
    let played = play(&mut told, &mut tally, stop, &mut report).await;
    if played.is_ok() {
        // The last edge is on its way to whoever looks at the page.
        tokio::time::sleep(LAST_LOOK).await;
    }
    parts.stop();
    server.stop();
    drop(directory);
    played.map(|stopped| tally.summary(stopped))
}

/// Keeps the account until all is shown. Returns whether it was stopped before.
async fn play(
    told: &mut mpsc::UnboundedReceiver<Happened>,
    tally: &mut Tally,
    stop: impl Future<Output = ()>,
    report: &mut impl FnMut(Report),
) -> Result<bool, DemoError> {
    tokio::pin!(stop);
    let mut settling: Option<Sender<()>> = None;
    let mut deadline = None;
    loop {
        let patience = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let happened = tokio::select! {
            happened = told.recv() => happened.ok_or(DemoError::Ended("demo"))?,
            () = &mut stop => return Ok(true),
            () = patience => return Ok(false),
        };
        let mut shown = Vec::new();
        match happened {
            Happened::Wrote { row, at, message } => shown = tally.wrote(row, at, &message),
            Happened::Rewrote { summary, again, at } => shown = tally.rewrote(summary, &again, at),
            Happened::Undone => report(Report::Undone),
            Happened::Arrived { seen, at } => {
                shown.extend(tally.arrived(seen.clone(), at).map(|latency| (seen, latency)));
            }
            Happened::Polled { row, at } => tally.polled(row, at),
            Happened::Settle(reply) => settling = Some(reply),
            Happened::Over(ended) => {
                ended?;
                deadline = Some(tokio::time::Instant::now() + PATIENCE);
            }
        }
        for (seen, latency) in shown {
            report(Report::Shown(seen, latency));
        }
        if tally.all_arrived() && tally.all_polled() {
            if let Some(reply) = settling.take() {
                // Who no longer waits needs no word.
                let _ = reply.send(());
            }
            if deadline.is_some() {
                return Ok(false);
            }
        }
    }
}

/// Plays the script until `stop` is closed.
fn act_out(
    hermes: &mut Hermes,
    beats: Vec<Beat>,
    stop: &Receiver<()>,
    tell: &Teller,
) -> rusqlite::Result<()> {
    for Beat { after, act } in beats {
        if stop.recv_timeout(after) != Err(RecvTimeoutError::Timeout) {
            return Ok(());
        }
        match act {
            Act::Store(message) => {
                let committed = hermes.append(message.clone())?;
                tell.tell(Happened::Wrote { row: committed.row, at: committed.at, message });
            }
            Act::Name(title) => hermes.name(title)?,
            Act::Undo => {
                // Nobody takes back what is not there to be seen yet.
                settle(stop, tell);
                hermes.undo_turn()?;
                tell.tell(Happened::Undone);
            }
            Act::BeginCompaction => hermes.begin_compaction()?,
            Act::Compact(summary) => {
                settle(stop, tell);
                let done = hermes.compact(KEPT.0, KEPT.1, summary)?;
                tell.tell(Happened::Rewrote {
                    summary: (done.summary, summary),
                    again: done.again,
                    at: done.at,
                });
            }
        }
    }
    Ok(())
}

/// Waits until all that was written is seen.
fn settle(stop: &Receiver<()>, tell: &Teller) {
    let (reply, settled) = crossbeam_channel::bounded(1);
    tell.tell(Happened::Settle(reply));
    crossbeam_channel::select! {
        recv(settled) -> _ => {}
        recv(stop) -> _ => {}
        default(PATIENCE) => {}
    }
}

/// What a posted event shows; `None` for what is no part of the transcript.
fn seen(event: &Event) -> Option<Seen> {
    let (kind, text) = match event {
        Event::Reasoning(delta) => (Kind::Reasoning, delta.clone()),
        Event::Boundary(item) => (Kind::Boundary, word(item.get("summary")).to_owned()),
        Event::Item { item, .. } => match word(item.get("type")) {
            "function_call" => {
                let (name, arguments) = (word(item.get("name")), word(item.get("arguments")));
                (Kind::Call, format!("{name} {arguments}"))
            }
            "function_call_output" => (Kind::Output, word(item.get("output")).to_owned()),
            _ => {
                let kind = if word(item.get("role")) == "user" { Kind::User } else { Kind::Agent };
                let text = item.get("content").and_then(|content| content.get(0)?.get("text"));
                (kind, word(text).to_owned())
            }
        },
        Event::Interrupted(_) | Event::Change(_) => return None,
    };
    Some(Seen { kind, text })
}

fn word(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}
