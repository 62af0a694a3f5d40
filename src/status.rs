//! Watching a running mirror: what it says of itself, and to whom.
//!
//! ```text
//! stats ──look──▶ snapshot ──▶ JSON, metrics, text ──▶ the state directory's socket, a loopback page
//! ```
//!
//! A snapshot is made when somebody asks. While nobody does, nothing runs here.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::config;
use crate::state::socket::Socket;
use crate::stats::Stats;

mod answer;
mod metrics;
mod page;
mod snapshot;
mod text;

pub use snapshot::{
    Bucket, Items, LastRow, MirrorStatus, Quantiles, Rows, Snapshot, SourceStatus, State, VERSION,
};
pub use text::{Bars, text};

/// Those who can be asked, while this lives.
#[derive(Debug)]
pub struct Watch {
    _tasks: JoinSet<()>,
    /// Where the page is, if there is one.
    pub page: Option<SocketAddr>,
}

/// Begins to answer questions about a pipeline in a state directory that is its own. What can't be had is said, and
/// done without: a mirror is not there to be watched.
pub async fn watch(stats: Arc<Stats>, config: &config::Status, dir: &Path) -> Watch {
    let mut tasks = JoinSet::new();
    let listener = match config.listen {
        Some(address) => listen(address).await,
        None => None,
    };
    let page = listener.as_ref().map(|(_, address)| *address);
    let asked = Arc::new(snapshot::Asked::new(stats, page));
    if let Some((listener, address)) = listener {
        tracing::info!(url = %format_args!("http://{address}/"), "the status is shown");
        tasks.spawn(page::serve(listener, address.port(), Arc::clone(&asked)));
    }
    match Socket::bind(dir) {
        Ok(socket) => {
            tasks.spawn(answer::serve(socket, asked));
        }
        Err(error) => tracing::warn!("{error}; `hermes-mirror status` will not find this process"),
    }
    Watch { _tasks: tasks, page }
}

async fn listen(address: SocketAddr) -> Option<(TcpListener, SocketAddr)> {
    let bound = TcpListener::bind(address).await;
    match bound.and_then(|listener| listener.local_addr().map(|address| (listener, address))) {
        Ok(bound) => Some(bound),
        Err(error) => {
            tracing::error!("cannot show the status at {address}: {error}; mirroring without");
            None
        }
    }
}
