//! Builds the stages, joins them, watches over them, and shuts them down in two steps: stop reading, then drain.
//!
//! `detect` and `read` are threads; behind them each conversation has a lane, a task of the caller's tokio
//! runtime (a current-thread one is enough). Data flows one way. What flows back is the pressure of a full
//! lane: its rows wait in state.db.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{Id, JoinSet};

use crate::config::{self, Config};
use crate::event::{Binding, Wake};
use crate::hermes::discovery::Terminal;
use crate::hermes::{self, Source};
use crate::ids::{ConversationId, HermesSessionId};
use crate::omnigent::{Client, ClientError};
use crate::retry::Supervision;
use crate::stage::deliver::now_ms;
use crate::stage::detect::{Detect, Health};
use crate::stage::feed::{Feed, LaneSender, Target};
use crate::stage::read::{Control, Reader};
use crate::stage::wake::{self, Waker, Wakes};
use crate::state::bridge::Bridge;
use crate::state::{StateError, claims, dir};

mod lane;
mod supervise;

use lane::{Lane, Plan};

/// How the pipeline ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Not at all: it follows its sessions until it is told to stop.
    Follow,
    /// Once everything that is there is delivered.
    Once,
}

/// Why a pipeline can't be built.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// There is nothing to mirror.
    #[error("the configuration has no [[mirror]]")]
    NoMirror,
    /// The path of state.db is not known.
    #[error("the configuration does not say where state.db is")]
    NoDatabase,
    /// The client for the server can't be built.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The mirror's own files can't be kept.
    #[error(transparent)]
    State(#[from] StateError),
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Every row that was read was delivered. If not, the rest is read again at the next start.
    pub drained: bool,
    /// Mirrors that had found their session by then.
    pub bound: usize,
    /// All mirrors.
    pub mirrors: usize,
}

/// A pipeline that is built and does not run yet.
pub struct Pipeline {
    config: Arc<Config>,
    database: PathBuf,
    mirrors: Vec<Mirror>,
    waker: Waker,
    wakes: Wakes,
}

/// One `[[mirror]]`, ready to run.
struct Mirror {
    plan: Plan,
    target: Target,
    bridge_dir: PathBuf,
    launch_epoch_s: f64,
}

impl Pipeline {
    /// Builds the pipeline that a valid configuration describes, with the path of state.db filled in.
    /// `environment` looks up variables.
    pub fn new(
        config: Config,
        environment: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Result<Self, PipelineError> {
        if config.mirror.is_empty() {
            return Err(PipelineError::NoMirror);
        }
        let database = config.source.db.clone().ok_or(PipelineError::NoDatabase)?;
        let client = Client::new(&config.deliver, Box::new(environment))?;
        let (waker, wake_receiver) = wake::channel();
        let config = Arc::new(config);
        let configured_model = hermes::configured_beside(&database);
        let mut mirrors = Vec::with_capacity(config.mirror.len());
        for mirror in &config.mirror {
            let bridge_dir = bridge_dir(&config, mirror)?;
            let launch_epoch_s = claim_epoch(mirror);
            let bridge = Bridge::open(bridge_dir.clone(), launch_epoch_s)?;
            let plan = Plan {
                conversation: ConversationId::new(mirror.conversation.as_str()),
                agent: mirror.agent_name.clone().unwrap_or_else(|| config::DEFAULT_AGENT.to_owned()),
                client: client.clone(),
                bridge: Arc::new(Mutex::new(bridge)),
                config: Arc::clone(&config),
                configured_model: configured_model.clone(),
                waker: waker.clone(),
            };
            mirrors.push(Mirror { plan, target: target(mirror), bridge_dir, launch_epoch_s });
        }
        Ok(Self { config, database, mirrors, waker, wakes: wake_receiver })
    }

    /// Runs until `shutdown` is ready or, in [`Mode::Once`], all is delivered.
    pub async fn run(self, mode: Mode, shutdown: impl Future<Output = ()>) -> Result<Ended, PipelineError> {
        let (orders, control) = crossbeam_channel::unbounded();
        let mut lanes = Lanes::default();
        let feeds: Vec<Feed> = self.mirrors.iter().map(|mirror| mirror.feed(lanes.start(mirror))).collect();
        let health = Health::default();
        let source = Source::new(self.database.clone(), Duration::from_millis(self.config.read.busy_ms));
        let (detect, read) = (self.config.detect.clone(), &self.config.read);
        let reader = Reader::new(source, detect.clone(), read, self.wakes, control, feeds, health.clone());
        let (stop, stopped) = crossbeam_channel::bounded::<()>(0);
        let mut read_done = spawn_reader(reader, mode, stopped.clone())?;
        let detector = Detect::new(self.database.clone(), detect, self.waker.clone(), health);
        let watching = spawn_detector(detector, stopped)?;
        let pilot = Pilot { mirrors: self.mirrors, orders, waker: self.waker };

        pilot.watch_over(&mut lanes, &mut read_done, shutdown).await;
        // Step one: read no more. Dropping the reader lets go of the lanes' other ends.
        drop(stop);
        pilot.order(Control::Stop);
        let _ = read_done.await;
        // Step two: let the lanes deliver what they hold.
        let drained = lanes.drain(Duration::from_millis(self.config.deliver.drain_ms), mode).await;
        let _ = tokio::task::spawn_blocking(move || watching.join()).await;
        let bound = pilot.mirrors.iter().filter(|mirror| mirror.binding().is_some()).count();
        Ok(Ended { drained, bound, mirrors: pilot.mirrors.len() })
    }
}

impl Mirror {
    fn feed(&self, lane: LaneSender) -> Feed {
        let (dir, launch) = (self.bridge_dir.clone(), self.launch_epoch_s);
        let taken = move |session: &HermesSessionId| claims::is_taken(&dir, session, launch, now_ms());
        let conversation = self.plan.conversation.clone();
        Feed::new(conversation, self.target.clone(), self.binding(), lane, Box::new(taken))
    }

    fn binding(&self) -> Option<Binding> {
        self.bridge(|bridge| bridge.binding())
    }

    fn bridge<T>(&self, act: impl FnOnce(&mut Bridge) -> T) -> T {
        act(&mut self.plan.bridge.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Renews the claim on the session; false where a sibling has the better one.
    fn heartbeat(&self) -> bool {
        let now = now_ms();
        let session = self.bridge(|bridge| bridge.session().cloned());
        let lost = session
            .is_some_and(|session| claims::is_taken(&self.bridge_dir, &session, self.launch_epoch_s, now));
        if !lost && let Err(error) = self.bridge(|bridge| bridge.heartbeat(now)) {
            tracing::debug!(conversation = %self.plan.conversation, "{error}");
        }
        !lost
    }
}

/// The lanes' tasks.
#[derive(Default)]
struct Lanes {
    tasks: JoinSet<()>,
    started: Vec<(Id, Instant, Supervision)>,
}

impl Lanes {
    /// Starts the lane of the next mirror.
    fn start(&mut self, mirror: &Mirror) -> LaneSender {
        let (id, sender) = self.spawn(mirror);
        self.started.push((id, Instant::now(), Supervision::default()));
        sender
    }

    fn spawn(&mut self, mirror: &Mirror) -> (Id, LaneSender) {
        // Room for a row and what may follow it, beyond the rows that are to wait.
        let capacity = mirror.plan.config.deliver.queue_rows.saturating_add(1);
        let (readings, queue) = mpsc::channel(capacity);
        let starved = Arc::new(AtomicBool::new(false));
        let lane = Lane::new(mirror.plan.clone(), Arc::clone(&starved), capacity);
        let id = self.tasks.spawn(lane.run(queue)).id();
        (id, LaneSender { readings, starved })
    }

    /// Waits for a lane that fails, and for the time after which to start it again: which, and how long.
    async fn failed(&mut self) -> (usize, Duration) {
        loop {
            match self.tasks.join_next_with_id().await {
                Some(Err(error)) if error.is_panic() => {
                    let id = error.id();
                    let found = self.started.iter_mut().enumerate().find(|(_, (task, ..))| *task == id);
                    let Some((at, (_, started, supervision))) = found else { continue };
                    let wait = supervision.failed(started.elapsed());
                    supervise::announce(
                        "deliver",
                        supervision.failures(),
                        &*error.into_panic(),
                        wait.as_secs(),
                    );
                    return (at, wait);
                }
                Some(_) => {}
                None => return std::future::pending().await,
            }
        }
    }

    fn restart(&mut self, at: usize, mirror: &Mirror) -> LaneSender {
        let (id, sender) = self.spawn(mirror);
        if let Some(entry) = self.started.get_mut(at) {
            (entry.0, entry.1) = (id, Instant::now());
        }
        sender
    }

    /// Waits until every lane has delivered what it holds, after a signal no longer than `deadline`.
    async fn drain(mut self, deadline: Duration, mode: Mode) -> bool {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        match mode {
            Mode::Follow => tokio::time::timeout(deadline, all).await.is_ok(),
            Mode::Once => {
                all.await;
                true
            }
        }
    }
}

/// What steers a running pipeline.
struct Pilot {
    mirrors: Vec<Mirror>,
    orders: Sender<Control>,
    waker: Waker,
}

impl Pilot {
    fn order(&self, order: Control) {
        // A reader that is gone needs no orders.
        let _ = self.orders.send(order);
        self.waker.wake(Wake::Room);
    }

    /// Renews claims and restarts lanes until it is time to stop.
    async fn watch_over(
        &self,
        lanes: &mut Lanes,
        read_done: &mut oneshot::Receiver<()>,
        shutdown: impl Future<Output = ()>,
    ) {
        tokio::pin!(shutdown);
        let mut heartbeat = tokio::time::interval(claims::HEARTBEAT);
        heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut lost = BTreeSet::new();
        loop {
            tokio::select! {
                () = &mut shutdown => return,
                _ = &mut *read_done => return,
                _ = heartbeat.tick() => self.renew_claims(&mut lost),
                (at, wait) = lanes.failed() => {
                    tokio::time::sleep(wait).await;
                    if let Some(mirror) = self.mirrors.get(at) {
                        let lane = lanes.restart(at, mirror);
                        self.order(Control::Restart { feed: at, lane, resume: mirror.binding() });
                    }
                }
            }
        }
    }

    fn renew_claims(&self, lost: &mut BTreeSet<usize>) {
        for (at, mirror) in self.mirrors.iter().enumerate() {
            if mirror.heartbeat() {
                lost.remove(&at);
            } else if lost.insert(at) {
                self.order(Control::Release { feed: at, resume: mirror.binding() });
            }
        }
    }
}

fn spawn_reader(
    mut reader: Reader,
    mode: Mode,
    stopped: crossbeam_channel::Receiver<()>,
) -> Result<oneshot::Receiver<()>, PipelineError> {
    let (done, read_done) = oneshot::channel();
    thread::Builder::new().name("read".to_owned()).spawn(move || {
        supervise::stage("read", &stopped, || match mode {
            Mode::Follow => reader.run(),
            Mode::Once => reader.drain(),
        });
        // The lanes' other ends go first: who waits for this then finds them closed.
        drop(reader);
        let _ = done.send(());
    })?;
    Ok(read_done)
}

fn spawn_detector(
    mut detect: Detect,
    stopped: crossbeam_channel::Receiver<()>,
) -> Result<thread::JoinHandle<()>, PipelineError> {
    let thread = thread::Builder::new().name("detect".to_owned());
    Ok(thread.spawn(move || supervise::stage("detect", &stopped, || detect.run(&stopped)))?)
}

fn bridge_dir(config: &Config, mirror: &config::Mirror) -> Result<PathBuf, StateError> {
    match &mirror.bridge_dir {
        Some(dir) => Ok(dir.clone()),
        None => Ok(dir::root(&config.state)?.join(dir::file_name(&mirror.conversation))),
    }
}

/// A mirror whose terminal's launch is not known stands behind those whose is.
#[allow(clippy::cast_precision_loss, reason = "ms since the epoch are far below 2^52")]
fn claim_epoch(mirror: &config::Mirror) -> f64 {
    mirror.launch_epoch.unwrap_or_else(|| now_ms() as f64 / 1_000.0)
}

fn target(mirror: &config::Mirror) -> Target {
    match (&mirror.session, &mirror.workspace) {
        (Some(session), _) => Target::Session(HermesSessionId::new(session.as_str())),
        (None, workspace) => Target::Terminal(Terminal {
            workspace: workspace.clone().unwrap_or_default(),
            launch_epoch_s: mirror.launch_epoch.unwrap_or(0.0),
        }),
    }
}
