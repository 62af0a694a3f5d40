//! Stage 1, change detect: the file system says "look", and so does a timer.
//!
//! Contract: a wake may be lost or spurious; it costs time, never a row. A timed poll always runs beside the
//! watcher, because a watch can be accepted and stay mute (network and virtual-machine file systems, WSL),
//! be refused (watch limits), or be lost with its directory.
//!
//! What is watched is the directory, never the database: the watch must outlive a file that is replaced, and
//! a back-end that opens what it watches (kqueue) must not hold a descriptor on state.db or -shm, whose
//! closing would drop this process's SQLite locks. On macOS the -wal is watched as well, since a directory
//! there reports no writes into its files (documented by notify; not measured here).

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, select};
use notify::event::ModifyKind;
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::degraded::{Current, Degraded};
use super::wake::Waker;
use crate::config::{self, DetectMode};
use crate::event::Wake;
#[cfg(target_os = "macos")]
use crate::hermes::with_suffix;
use crate::hermes::{Identity, resolved};
use crate::hooks::{Kind, Teller};

/// How long to wait before a refused watch is asked for again.
const WATCH_RETRY: Duration = Duration::from_secs(30);

/// What is known of the watcher, shared with the reader and the status.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<HealthBits>);

#[derive(Debug, Default)]
struct HealthBits {
    watching: AtomicBool,
    mute: AtomicBool,
    lively: AtomicBool,
    /// Rings when that begins: the calm poll may be far off.
    begun: Bell,
    fault: Current,
    teller: Teller,
}

#[derive(Debug)]
struct Bell(Sender<()>, Receiver<()>);

impl Default for Bell {
    fn default() -> Self {
        let (sender, receiver) = bounded(1);
        Self(sender, receiver)
    }
}

impl Health {
    /// Nothing is known yet; what is amiss will be told to `teller`.
    #[must_use]
    pub fn telling(teller: Teller) -> Self {
        Self(Arc::new(HealthBits { teller, ..HealthBits::default() }))
    }

    /// A watch is registered.
    #[must_use]
    pub fn is_watching(&self) -> bool {
        self.0.watching.load(Ordering::Relaxed)
    }

    /// Whether events announce changes. If not, because nothing watches or changes were found that no event announced,
    /// the poll runs at its full pace.
    #[must_use]
    pub fn sees_events(&self) -> bool {
        self.is_watching() && !self.0.mute.load(Ordering::Relaxed)
    }

    /// Notes whether events arrive. Returns true when that is news.
    #[allow(clippy::must_use_candidate, reason = "only who tells people needs to know whether it is news")]
    pub fn set_mute(&self, mute: bool) -> bool {
        self.0.mute.swap(mute, Ordering::Relaxed) != mute
    }

    /// Why the database can't be read, while it can't.
    #[must_use]
    pub fn fault(&self) -> Option<Degraded> {
        self.0.fault.get()
    }

    /// Notes whether the database can be read.
    pub fn set_fault(&self, fault: Option<Degraded>) {
        if let Some(fault) = self.0.fault.set(fault) {
            self.0.teller.tell(Kind::Degraded, || vec![("REASON", fault.name().to_owned())]);
        }
    }

    /// Notes whether rows are to be expected within moments.
    pub fn set_lively(&self, lively: bool) {
        if !self.0.lively.swap(lively, Ordering::Relaxed) && lively {
            // One that rings already is heard as well.
            let _ = self.0.begun.0.try_send(());
        }
    }

    fn set_watching(&self, watching: bool) {
        self.0.watching.store(watching, Ordering::Relaxed);
    }
}

/// The stage: a thread that keeps a watch registered and ticks.
#[derive(Debug)]
pub struct Detect {
    database: PathBuf,
    config: config::Detect,
    waker: Waker,
    health: Health,
    watch: Option<Watch>,
    refused: Option<Instant>,
}

#[derive(Debug)]
struct Watch {
    _watcher: RecommendedWatcher,
    /// The database, links resolved: it is there that a commit writes.
    database: PathBuf,
    directory: Identity,
    #[cfg(target_os = "macos")]
    wal: Option<Identity>,
}

impl Detect {
    /// Watches over the database at `database`.
    #[must_use]
    pub fn new(database: PathBuf, config: config::Detect, waker: Waker, health: Health) -> Self {
        Self { database, config, waker, health, watch: None, refused: None }
    }

    /// Runs until `stop` is closed or the reader is gone.
    pub fn run(&mut self, stop: &Receiver<()>) {
        let mut looked_after: Option<Instant> = None;
        loop {
            // While rows are expected, what ticks is only the poll.
            if looked_after.is_none_or(|at| at.elapsed() >= self.calm_interval()) {
                looked_after = Some(Instant::now());
                self.keep_watching();
            }
            if !self.waker.wake(Wake::Poll) {
                return;
            }
            select! {
                recv(stop) -> _ => return,
                recv(self.health.0.begun.1) -> _ => {}
                default(self.interval()) => {}
            }
        }
    }

    fn calm_interval(&self) -> Duration {
        let config = &self.config;
        Duration::from_millis(if self.health.sees_events() {
            config.fallback_poll_ms
        } else {
            config.poll_ms
        })
    }

    fn interval(&self) -> Duration {
        if !self.health.sees_events() && self.health.0.lively.load(Ordering::Relaxed) {
            return self.calm_interval().min(Duration::from_millis(self.config.turn_poll_ms));
        }
        self.calm_interval()
    }

    /// Registers the watch where there is none, or where its database or directory is no longer the one under the path.
    fn keep_watching(&mut self) {
        if self.config.mode == DetectMode::Poll {
            return;
        }
        let database = resolved(&self.database);
        let directory = directory_of(&database);
        let now = Identity::of(&directory).ok().flatten();
        let stands = |watch: &Watch| {
            watch.database == database && Some(watch.directory) == now && watch.is_whole(&database)
        };
        if self.watch.as_ref().is_some_and(stands) {
            return;
        }
        self.watch = None;
        self.health.set_watching(false);
        let Some(identity) = now else { return };
        if self.refused.is_some_and(|at| at.elapsed() < WATCH_RETRY) {
            return;
        }
        match self.register(database, &directory, identity) {
            Ok(watch) => {
                self.watch = Some(watch);
                self.health.set_watching(true);
                if self.refused.take().is_some() {
                    tracing::info!(directory = %directory.display(), "file-system events again");
                }
                // What happened before the watch stood made no event.
                self.waker.wake(Wake::Rescan);
            }
            Err(error) => {
                if self.refused.replace(Instant::now()).is_none() {
                    tracing::warn!(
                        directory = %directory.display(), state = %Degraded::Unwatched,
                        "no file-system events ({}); polling every {} ms instead",
                        explain(&error),
                        self.config.poll_ms
                    );
                }
            }
        }
    }

    fn register(&self, database: PathBuf, directory: &Path, identity: Identity) -> notify::Result<Watch> {
        let waker = self.waker.clone();
        let name = database.file_name().unwrap_or_default().to_owned();
        let filter = Filter { directory: directory.to_owned(), database: name };
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if let Some(wake) = filter.wake(event) {
                waker.wake(wake);
            }
        })?;
        watcher.watch(directory, RecursiveMode::NonRecursive)?;
        #[cfg(target_os = "macos")]
        let wal = {
            let path = with_suffix(&database, "-wal");
            let wal = Identity::of(&path).ok().flatten();
            if wal.is_some() {
                watcher.watch(&path, RecursiveMode::NonRecursive)?;
            }
            wal
        };
        Ok(Watch {
            _watcher: watcher,
            database,
            directory: identity,
            #[cfg(target_os = "macos")]
            wal,
        })
    }
}

fn directory_of(database: &Path) -> PathBuf {
    match database.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

impl Watch {
    #[cfg(target_os = "macos")]
    fn is_whole(&self, database: &Path) -> bool {
        self.wal == Identity::of(&with_suffix(database, "-wal")).ok().flatten()
    }

    #[cfg(not(target_os = "macos"))]
    #[allow(clippy::unused_self, reason = "only a back-end that watches single files can lose one")]
    fn is_whole(&self, _database: &Path) -> bool {
        true
    }
}

/// Tells a write to the database from all else that happens in its directory.
struct Filter {
    directory: PathBuf,
    database: OsString,
}

impl Filter {
    fn wake(&self, event: notify::Result<Event>) -> Option<Wake> {
        let Ok(event) = event else { return Some(Wake::Rescan) };
        if event.need_rescan() {
            return Some(Wake::Rescan);
        }
        // Opening, closing and touching are reported as well, also those by our own reads.
        let wake = match event.kind {
            EventKind::Access(_) | EventKind::Modify(ModifyKind::Metadata(_)) => return None,
            EventKind::Modify(ModifyKind::Data(_)) => Wake::Event,
            // Another file may stand under the path now.
            _ => Wake::Rescan,
        };
        event.paths.iter().any(|path| self.concerns(path)).then_some(wake)
    }

    /// The database, its -wal or its -journal; not -shm, which readers write too. The directory itself only
    /// shows up when it is moved or removed.
    fn concerns(&self, path: &Path) -> bool {
        if path == self.directory {
            return true;
        }
        let (Some(name), database) = (path.file_name(), self.database.as_encoded_bytes()) else {
            return false;
        };
        matches!(name.as_encoded_bytes().strip_prefix(database), Some(b"" | b"-wal" | b"-journal"))
    }
}

/// A refused watch, with the limit's name where it is one.
fn explain(error: &notify::Error) -> String {
    const ENOSPC: i32 = 28;
    const EMFILE: i32 = 24;
    let code = match &error.kind {
        notify::ErrorKind::MaxFilesWatch => Some(ENOSPC),
        notify::ErrorKind::Io(cause) => io::Error::raw_os_error(cause),
        _ => None,
    };
    match code {
        Some(ENOSPC) => "the limit fs.inotify.max_user_watches is reached".to_owned(),
        Some(EMFILE) => {
            "a limit is reached: fs.inotify.max_user_instances, or this process's open files (ulimit -n)"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use notify::event::{AccessKind, AccessMode, CreateKind, DataChange, MetadataKind, RemoveKind};

    use super::*;

    fn filter() -> Filter {
        Filter { directory: PathBuf::from("/h"), database: OsString::from("state.db") }
    }

    fn seen(kind: EventKind, path: &str) -> Option<Wake> {
        filter().wake(Ok(Event::new(kind).add_path(PathBuf::from(path))))
    }

    #[test]
    fn writes_to_database_log_and_journal_wake() {
        let write = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        for path in ["/h/state.db", "/h/state.db-wal", "/h/state.db-journal", "/h"] {
            assert_eq!(seen(write, path), Some(Wake::Event), "{path}");
        }
        for kind in [EventKind::Create(CreateKind::File), EventKind::Remove(RemoveKind::File), EventKind::Any]
        {
            assert_eq!(seen(kind, "/h/state.db"), Some(Wake::Rescan), "{kind:?}");
        }
    }

    #[test]
    fn what_our_own_reads_cause_does_not_wake() {
        let write = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        let close = EventKind::Access(AccessKind::Close(AccessMode::Write));
        let touch = EventKind::Modify(ModifyKind::Metadata(MetadataKind::Any));
        assert_eq!(seen(write, "/h/state.db-shm"), None);
        assert_eq!(seen(close, "/h/state.db-wal"), None);
        assert_eq!(seen(touch, "/h/state.db"), None);
        assert_eq!(seen(write, "/h/state.db.bak"), None);
        assert_eq!(seen(write, "/h/config.yaml"), None);
    }

    #[test]
    fn lost_events_and_errors_ask_for_a_rescan() {
        assert_eq!(filter().wake(Err(notify::Error::generic("queue"))), Some(Wake::Rescan));
        let overflow = Event::new(EventKind::Other).set_flag(notify::event::Flag::Rescan);
        assert_eq!(filter().wake(Ok(overflow)), Some(Wake::Rescan));
    }

    #[test]
    fn a_reached_limit_is_named() {
        let full = notify::Error::new(notify::ErrorKind::MaxFilesWatch);
        assert!(explain(&full).contains("fs.inotify.max_user_watches"));
        assert!(explain(&notify::Error::io(io::Error::from_raw_os_error(24))).contains("max_user_instances"));
    }
}
