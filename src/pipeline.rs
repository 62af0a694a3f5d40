//! Builds the stages, joins them, watches over them, and shuts them down in two steps: stop reading, then drain.
//!
//! `detect` and `read` are threads, two for each database; behind them each conversation has a lane, a task of the caller's tokio
//! runtime (a current-thread one is enough). Data flows one way. What flows back is the pressure of a full
//! lane: its rows wait in state.db.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::config::{self, Config};
use crate::hermes::{self, Source};
use crate::hooks::{self, Hooks};
use crate::omnigent::{Client, ClientError};
use crate::stage::backlog::Backlog;
use crate::stage::detect::Detect;
use crate::stage::feed::Feed;
use crate::stage::read::Reader;
use crate::stage::scout::Scouts;
use crate::stage::wake::{self, Waker, Wakes};
use crate::state::{StateError, dir};
use crate::stats::{SourceStats, Stats};

pub mod prospect;
pub mod replay;
pub mod tail;

mod founding;
mod lane;
mod lanes;
mod mirror;
mod pilot;
mod recovering;
mod supervise;

pub use lanes::Drain;

use founding::Founding;
use lanes::Lanes;
use mirror::{Common, Mirror, Origin, Places};
use pilot::{Orders, Pilot};

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
    /// The mirror's own files can't be kept, or are another process's.
    #[error(transparent)]
    State(#[from] StateError),
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What became of the rows that were read.
    pub drain: Drain,
    /// Mirrors of one session that had found it by then.
    pub bound: usize,
    /// All mirrors of one session.
    pub mirrors: usize,
}

/// A pipeline that is built and does not run yet.
pub struct Pipeline {
    config: Arc<Config>,
    mirrors: Vec<Mirror>,
    founding: Founding,
    intakes: Vec<Intake>,
    backlog: Backlog,
    stats: Arc<Stats>,
    hooks: Hooks,
}

/// What reads one database.
struct Intake {
    source: Arc<SourceStats>,
    scouts: Scouts,
    waker: Waker,
    wakes: Wakes,
}

impl Pipeline {
    /// Builds the pipeline that a valid configuration describes, with the path of state.db filled in, and takes
    /// the locks it needs. `environment` looks up variables.
    pub fn new(
        config: Config,
        environment: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Result<Self, PipelineError> {
        // Common to all of a person's processes, whatever their state directories.
        let locks = dir::root(&config::State::default())?;
        Self::with_locks(config, environment, &locks)
    }

    /// The same with the conversations' locks in a directory of its own: for a server that no other process knows.
    pub fn with_locks(
        config: Config,
        environment: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
        locks: &Path,
    ) -> Result<Self, PipelineError> {
        if config.mirror.is_empty() {
            return Err(PipelineError::NoMirror);
        }
        let client = Client::new(&config.deliver, Box::new(environment))?;
        let places = Places::open(&config.state, locks)?;
        if config.mirror.iter().any(|mirror| config.database_of(mirror).is_none()) {
            return Err(PipelineError::NoDatabase);
        }
        let (teller, hooks) = hooks::hooks(&config.hooks);
        let stats = Arc::new(Stats::new(client.address().to_string(), teller));
        let (mut origins, mut intakes) = (Vec::new(), Vec::new());
        for database in config.databases() {
            let (waker, bell) = wake::channel();
            let configured_model = hermes::configured_beside(database);
            let source = stats.add_source(database.to_owned());
            intakes.push((Arc::clone(&source), waker.clone(), bell));
            origins.push(Origin { database: database.to_owned(), waker, configured_model, source });
        }
        let config = Arc::new(config);
        let backlog = Backlog::default();
        let common = Common {
            client,
            config: Arc::clone(&config),
            origins,
            backlog: backlog.clone(),
            stats: Arc::clone(&stats),
        };
        let (mirrors, scouts, founding) = Founding::muster(common, places)?;
        let each = intakes.into_iter().zip(scouts);
        let intakes = each.map(|((source, waker, wakes), scouts)| Intake { source, scouts, waker, wakes });
        Ok(Self { config, mirrors, founding, intakes: intakes.collect(), backlog, stats, hooks })
    }

    /// What it counts, to be watched while it runs.
    #[must_use]
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.stats)
    }

    /// What is still to be delivered of the rows that were there when the mirrors began.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        self.backlog.clone()
    }

    /// Runs until `shutdown` is ready or, in [`Mode::Once`], all is delivered. What was read by then is delivered
    /// within `drain_ms`, or until `hurry` is ready.
    pub async fn run(
        self,
        mode: Mode,
        shutdown: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
    ) -> Result<Ended, PipelineError> {
        let mut lanes = Lanes::default();
        let (stop, stopped) = crossbeam_channel::bounded::<()>(0);
        let (reads, mut reading) = mpsc::channel(1);
        let (mut readers, mut watching) = (Vec::new(), Vec::new());
        for (origin, intake) in self.intakes.into_iter().enumerate() {
            let (control, orders) = crossbeam_channel::unbounded();
            let mirrors = self.mirrors.iter().filter(|mirror| mirror.origin == origin);
            let feeds: Vec<Feed> = mirrors.map(|mirror| mirror.feed(lanes.start(mirror))).collect();
            let Intake { source, scouts, waker, wakes } = intake;
            let (database, health) = (source.database.clone(), source.health.clone());
            let source = Source::new(database.clone(), Duration::from_millis(self.config.read.busy_ms));
            let (detect, read) = (self.config.detect.clone(), &self.config.read);
            let feeds = (feeds, scouts);
            let reader = Reader::new(source, detect.clone(), read, wakes, orders, feeds, health.clone());
            spawn_reader(reader, mode, stopped.clone(), reads.clone())?;
            let detector = Detect::new(database, detect, waker.clone(), health);
            watching.push(spawn_detector(detector, stopped.clone())?);
            readers.push(Orders { control, waker });
        }
        drop(reads);
        let of_one = self.config.mirror.iter().filter(|mirror| mirror.matching.is_none()).count();
        let mut pilot = Pilot::new(self.mirrors, self.founding, readers);
        let hooks = self.hooks.start();

        tokio::pin!(shutdown);
        let readers_ended = pilot.watch_over(&mut lanes, &mut reading, shutdown.as_mut()).await;
        // Step one: read no more. Dropping the readers lets go of the lanes' other ends.
        drop(stop);
        if !readers_ended {
            pilot.stop();
            let _ = reading.recv().await;
        }
        // Step two: let the lanes deliver what they hold; once nobody waits for all of it, not for long.
        let patience = Duration::from_millis(self.config.deliver.drain_ms);
        let deadline = async {
            if readers_ended && mode == Mode::Once {
                shutdown.await;
            }
            tokio::select! { () = tokio::time::sleep(patience) => {}, () = hurry => {} }
        };
        let drain = lanes.drain(deadline).await;
        hooks.finish().await;
        let join = move || watching.into_iter().for_each(|thread| drop(thread.join()));
        let _ = tokio::task::spawn_blocking(join).await;
        Ok(Ended { drain, bound: pilot.bound(), mirrors: of_one })
    }
}

/// `reads` is dropped once the reader has ended, and has let go of the lanes' other ends.
fn spawn_reader(
    mut reader: Reader,
    mode: Mode,
    stopped: crossbeam_channel::Receiver<()>,
    reads: mpsc::Sender<()>,
) -> Result<(), PipelineError> {
    thread::Builder::new().name("read".to_owned()).spawn(move || {
        supervise::stage("read", &stopped, || match mode {
            Mode::Follow => reader.run(),
            Mode::Once => reader.drain(),
        });
        drop(reader);
        drop(reads);
    })?;
    Ok(())
}

fn spawn_detector(
    mut detect: Detect,
    stopped: crossbeam_channel::Receiver<()>,
) -> Result<thread::JoinHandle<()>, PipelineError> {
    let thread = thread::Builder::new().name("detect".to_owned());
    Ok(thread.spawn(move || supervise::stage("detect", &stopped, || detect.run(&stopped)))?)
}
