//! Builds the stages, joins them, watches over them, and shuts them down in two steps: stop reading, then drain.
//!
//! `detect` and `read` are threads; behind them each conversation has a lane, a task of the caller's tokio
//! runtime (a current-thread one is enough). Data flows one way. What flows back is the pressure of a full
//! lane: its rows wait in state.db.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::config::{self, Config};
use crate::hermes::{self, Source};
use crate::omnigent::{Client, ClientError};
use crate::stage::detect::{Detect, Health};
use crate::stage::feed::Feed;
use crate::stage::read::{Control, Reader};
use crate::stage::scout::Scouts;
use crate::stage::wake::{self, Waker, Wakes};
use crate::state::{StateError, dir};

pub mod prospect;
pub mod replay;

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
use mirror::{Common, Mirror, Places};
use pilot::Pilot;

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
    scouts: Scouts,
    founding: Founding,
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
        let database = config.source.db.clone().ok_or(PipelineError::NoDatabase)?;
        let client = Client::new(&config.deliver, Box::new(environment))?;
        let places = Places::open(&config.state, locks)?;
        let (waker, wake_receiver) = wake::channel();
        let config = Arc::new(config);
        let common = Common {
            client,
            waker: waker.clone(),
            config: Arc::clone(&config),
            configured_model: hermes::configured_beside(&database),
            database: database.clone(),
        };
        let (mirrors, scouts, founding) = Founding::muster(common, places)?;
        Ok(Self { config, database, mirrors, scouts, founding, waker, wakes: wake_receiver })
    }

    /// Runs until `shutdown` is ready or, in [`Mode::Once`], all is delivered. What was read by then is delivered
    /// within `drain_ms`, or until `hurry` is ready.
    pub async fn run(
        self,
        mode: Mode,
        shutdown: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
    ) -> Result<Ended, PipelineError> {
        let (orders, control) = crossbeam_channel::unbounded();
        let mut lanes = Lanes::default();
        let feeds: Vec<Feed> = self.mirrors.iter().map(|mirror| mirror.feed(lanes.start(mirror))).collect();
        let health = Health::default();
        let source = Source::new(self.database.clone(), Duration::from_millis(self.config.read.busy_ms));
        let (detect, read) = (self.config.detect.clone(), &self.config.read);
        let feeds = (feeds, self.scouts);
        let reader = Reader::new(source, detect.clone(), read, self.wakes, control, feeds, health.clone());
        let (stop, stopped) = crossbeam_channel::bounded::<()>(0);
        let mut read_done = spawn_reader(reader, mode, stopped.clone())?;
        let detector = Detect::new(self.database.clone(), detect, self.waker.clone(), health);
        let watching = spawn_detector(detector, stopped)?;
        let mut pilot = Pilot::new(self.mirrors, self.founding, orders, self.waker);

        tokio::pin!(shutdown);
        let reader_ended = pilot.watch_over(&mut lanes, &mut read_done, shutdown.as_mut()).await;
        // Step one: read no more. Dropping the reader lets go of the lanes' other ends.
        drop(stop);
        if !reader_ended {
            pilot.order(Control::Stop);
            let _ = read_done.await;
        }
        // Step two: let the lanes deliver what they hold; once nobody waits for all of it, not for long.
        let patience = Duration::from_millis(self.config.deliver.drain_ms);
        let deadline = async {
            if reader_ended && mode == Mode::Once {
                shutdown.await;
            }
            tokio::select! { () = tokio::time::sleep(patience) => {}, () = hurry => {} }
        };
        let drain = lanes.drain(deadline).await;
        let _ = tokio::task::spawn_blocking(move || watching.join()).await;
        Ok(Ended { drain, bound: pilot.bound(), mirrors: self.config.mirror.len() })
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
