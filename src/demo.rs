//! The whole thing on one machine: a pretend Hermes writes a real state.db, the real pipeline mirrors it into the embedded
//! server, and a polling loop reads the same database beside it, for comparison.
//!
//! Everything is in a directory that goes away with it. What happens is told in one channel to one loop, which keeps the
//! account; each part runs in a thread of its own, so that none of them waits for what is printed.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::config::{self, Config, Mirror};
use crate::pipeline::{Mode, Pipeline, PipelineError};
use crate::serve::{self, Event, ServeError, Server};

mod baseline;
mod hermes;
mod script;
mod tally;

use baseline::Baseline;
use hermes::{Hermes, Message};
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

/// Where things are.
#[derive(Clone)]
struct Place(PathBuf);

impl Place {
    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn database(&self) -> PathBuf {
        self.at("hermes/state.db")
    }
}

/// The embedded server, in its thread.
struct Serving {
    url: String,
    conversation: String,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Serving {
    async fn start(port: u16, place: &Place, tell: &Teller) -> Result<Self, DemoError> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, started) = oneshot::channel();
        let (data, tell) = (place.at("conversations.db"), tell.clone());
        let serve = async move {
            let observer = {
                let tell = tell.clone();
                Box::new(move |arrival: serve::Arrival<'_>| {
                    if let Some(seen) = seen(arrival.event).filter(|_| arrival.fresh) {
                        tell.tell(Happened::Arrived { seen, at: arrival.at });
                    }
                })
            };
            let bound = match Server::bind(port, &data).await {
                Ok(mut server) => server.create_conversation().map(|id| (server.observed(observer), id)),
                Err(error) => Err(error),
            };
            let (server, conversation) = match bound {
                Ok(bound) => bound,
                Err(error) => {
                    drop(ready.send(Err(error)));
                    return;
                }
            };
            drop(ready.send(Ok((server.url(), conversation))));
            let stopped = async {
                // Either says that it is over.
                let _ = stopped.await;
            };
            if let Err(error) = server.run(stopped).await {
                tell.tell(Happened::Over(Err(error.into())));
            }
        };
        let runtime = runtime()?;
        let thread = spawn("serve", move || runtime.block_on(serve))?;
        let (url, conversation) = started.await.map_err(|_| DemoError::Ended("server"))??;
        Ok(Self { url, conversation, stop, thread })
    }

    fn stop(self) {
        drop(self.stop);
        // That it panicked was said by then.
        let _ = self.thread.join();
    }
}

/// What runs beside the server: Hermes, the mirror and the baseline.
struct Parts {
    stop: Sender<()>,
    stop_mirror: oneshot::Sender<()>,
    threads: Vec<JoinHandle<()>>,
}

impl Parts {
    fn start(options: Options, place: &Place, server: &Serving, tell: &Teller) -> Result<Self, DemoError> {
        for name in ["hermes", "work", "state"] {
            std::fs::create_dir(place.at(name))?;
        }
        let launched = hermes::now();
        let mut hermes = Hermes::create(&place.database(), SESSION, &place.at("work"))?;
        let (stop, stopped) = crossbeam_channel::bounded::<()>(0);
        let (stop_mirror, mirror_stopped) = oneshot::channel::<()>();
        let mirror = mirror(place, server, launched)?;
        let over = tell.clone();
        let mirroring = spawn("mirror", move || {
            let ended = mirror_until(mirror, mirror_stopped);
            if let Err(error) = ended {
                over.tell(Happened::Over(Err(error)));
            }
        })?;
        let (polled, until) = (tell.clone(), stopped.clone());
        let baseline = Baseline { path: place.database(), session: SESSION };
        let polling = spawn("baseline", move || {
            baseline.run(&until, |row, at| polled.tell(Happened::Polled { row, at }));
        })?;
        let (beats, tell) = (script::script(options.turns, options.pace), tell.clone());
        let writing = spawn("hermes", move || {
            let ended = act_out(&mut hermes, beats, &stopped, &tell);
            tell.tell(Happened::Over(ended.map_err(DemoError::from)));
        })?;
        Ok(Self { stop, stop_mirror, threads: vec![writing, polling, mirroring] })
    }

    fn stop(self) {
        drop((self.stop, self.stop_mirror));
        for thread in self.threads {
            // That it panicked was said by then.
            let _ = thread.join();
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(run)
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// The real pipeline, with the settings that a person would begin with.
fn mirror(place: &Place, server: &Serving, launched: f64) -> Result<Pipeline, DemoError> {
    let mut config = Config::default();
    config.source.db = Some(place.database());
    config.deliver.base_url.clone_from(&server.url);
    config.deliver.drain_ms = 1_000;
    config.state.dir = Some(place.at("state"));
    config.mirror.push(Mirror {
        conversation: server.conversation.clone(),
        session: None,
        workspace: Some(place.at("work")),
        launch_epoch: Some(launched),
        bridge_dir: None,
        sources: config::default_sources(),
        agent_name: None,
    });
    // No other process knows of this server, so its locks go away with it, too.
    Ok(Pipeline::with_locks(config, |_| None, &place.at("state"))?)
}

fn mirror_until(pipeline: Pipeline, stopped: oneshot::Receiver<()>) -> Result<(), DemoError> {
    let stopped = async {
        // Either says that it is over.
        let _ = stopped.await;
    };
    runtime()?.block_on(pipeline.run(Mode::Follow, stopped, std::future::pending()))?;
    Ok(())
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
