//! A Sessions server for people without Omnigent: the part of its API that the mirror uses, and a page that shows it.
//!
//! It stands apart from the pipeline: nothing there knows of it, and it knows the mirror only by what it posts. It is
//! reached from this machine alone, keeps its conversations in one `SQLite` file of its own, and holds each item once for
//! a `source_id`, as Omnigent does.
//!
//! ```text
//! POST events ──▶ event ──▶ store ──pulse──▶ stream ──▶ page
//! ```
//!
//! What is streamed is read from the store: a pulse says that there is something new, and carries none of it. So a page
//! that was away, slow or reloaded gets what it lacks, once.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::sync::watch;

mod answer;
mod event;
mod page;
mod routes;
mod store;
mod stream;

pub use event::Event;
pub use store::{Store, StoreError};

/// The port that the default configuration of a mirror posts to.
pub const DEFAULT_PORT: u16 = 6767;

/// How long open requests may take once the server is to stop.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port can't be had.
    #[error("cannot listen on {address}: {cause}")]
    Bind {
        /// Where it was to listen.
        address: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
    /// The conversations can't be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It ended with a fault of the network.
    #[error("the server failed: {0}")]
    Network(#[source] io::Error),
}

impl ServeError {
    /// What can be done about it.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Bind { cause, .. } if cause.kind() == io::ErrorKind::AddrInUse => {
                Some("another server is there already; choose another port, or 0 for one that is free")
            }
            Self::Bind { cause, .. } if cause.kind() == io::ErrorKind::PermissionDenied => {
                Some("ports below 1024 are the system's; choose one above")
            }
            Self::Store(error) => error.help(),
            Self::Bind { .. } | Self::Network(_) => None,
        }
    }
}

/// An event that has come in and was taken.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// When its last byte had been read.
    pub at: Instant,
    /// What it is.
    pub event: &'a Event,
    /// Whether it was shown; `false` for an item that was there already.
    pub fresh: bool,
}

/// Is told of each arrival, before it is answered.
pub type Observer = Box<dyn Fn(Arrival<'_>) + Send + Sync>;

/// What of the store has changed so far, in counts that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pulse {
    /// Anything.
    all: u64,
    /// What the list of conversations shows.
    list: u64,
    /// The server is to stop.
    stopping: bool,
}

/// What the requests share.
struct Shared {
    store: Mutex<Store>,
    pulse: watch::Sender<Pulse>,
    observer: Option<Observer>,
    port: u16,
}

impl Shared {
    fn store(&self) -> MutexGuard<'_, Store> {
        // Each use is one statement or one transaction, so a request that failed has left nothing half done.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the store, away from the tasks that answer requests, and tells those who follow it.
    async fn with_store<T: Send + 'static>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut Store) -> T + Send + 'static,
    ) -> io::Result<T> {
        let shared = Arc::clone(self);
        let act = move || {
            let mut store = shared.store();
            let result = act(&mut store);
            let (all, list) = store.changes();
            shared.pulse.send_if_modified(|pulse| {
                let before = *pulse;
                (pulse.all, pulse.list) = (all, list);
                before != *pulse
            });
            result
        };
        tokio::task::spawn_blocking(act).await.map_err(io::Error::other)
    }
}

/// A server that has its port and its store, and answers once it runs.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    shared: Shared,
}

impl Server {
    /// Takes a port of the loopback address, 0 for any, and opens the file of the conversations.
    pub async fn bind(port: u16, data: &Path) -> Result<Self, ServeError> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let fault = |cause| ServeError::Bind { address, cause };
        let listener = TcpListener::bind(address).await.map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        let store = Store::open(data)?;
        let (pulse, _) = watch::channel(Pulse::default());
        let shared = Shared { store: Mutex::new(store), pulse, observer: None, port: address.port() };
        Ok(Self { listener, address, shared })
    }

    /// The same, with somebody who is told of each arrival.
    #[must_use]
    pub fn observed(mut self, observer: Observer) -> Self {
        self.shared.observer = Some(observer);
        self
    }

    /// Its address, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes a conversation, as a request would. Returns its id.
    pub fn create_conversation(&mut self) -> Result<String, ServeError> {
        let store = self.shared.store.get_mut().unwrap_or_else(PoisonError::into_inner);
        Ok(store.create(None, BTreeMap::new())?.id)
    }

    /// Answers requests until `shutdown` is ready. Streams end then, and what is under way has a moment to finish.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        let shared = Arc::new(self.shared);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let graceful = async {
            // Either says that it is over.
            let _ = stopped.await;
        };
        // Small frames one behind the other, which must not wait for one another's acknowledgement.
        let listener = self.listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let serving = axum::serve(listener, routes::router(Arc::clone(&shared)));
        let serving = serving.with_graceful_shutdown(graceful).into_future();
        tokio::pin!(serving, shutdown);
        tokio::select! {
            ended = &mut serving => return ended.map_err(ServeError::Network),
            () = &mut shutdown => {}
        }
        shared.pulse.send_modify(|pulse| pulse.stopping = true);
        drop(stop);
        tokio::select! {
            ended = serving => ended.map_err(ServeError::Network),
            // A client that will not let go.
            () = tokio::time::sleep(LAST_WORDS) => Ok(()),
        }
    }
}
