//! Processes that this one starts, and never leaves behind.
//!
//! A guard kills its process when dropped, also while unwinding. A signal runs no destructors, so a thread waits for
//! one and kills whatever is registered. What is re-executed from this binary ends by itself when its input closes.

use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::{fs, process, thread};

use anyhow::{Context, Result};

static LIVE: Mutex<Vec<Arc<Mutex<Child>>>> = Mutex::new(Vec::new());
static SCRATCH: OnceLock<PathBuf> = OnceLock::new();

/// A process that lives no longer than this value.
pub struct Guard {
    child: Arc<Mutex<Child>>,
    id: u32,
}

impl Guard {
    /// Starts the command.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        // Held across the spawn, so that a signal can't fall between the start and its registration.
        let mut live = lock(&LIVE);
        let child =
            command.spawn().with_context(|| format!("start {}", command.get_program().to_string_lossy()))?;
        let id = child.id();
        let child = Arc::new(Mutex::new(child));
        live.push(Arc::clone(&child));
        Ok(Self { child, id })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The child itself, to take its pipes.
    pub fn child(&self) -> MutexGuard<'_, Child> {
        lock(&self.child)
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Result<Option<ExitStatus>> {
        Ok(self.child().try_wait()?)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        lock(&LIVE).retain(|child| !Arc::ptr_eq(child, &self.child));
        end(&self.child);
    }
}

/// From now on an interrupt or a request to terminate ends every child, removes `scratch` and leaves with 130.
pub fn end_all_on_signal(scratch: PathBuf) -> Result<()> {
    SCRATCH.get_or_init(|| scratch);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _inside = runtime.enter();
    #[cfg(unix)]
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            #[cfg(unix)]
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            #[cfg(not(unix))]
            let _ = tokio::signal::ctrl_c().await;
        });
        // Not released before the exit: nothing new can start.
        let live = lock(&LIVE);
        live.iter().for_each(end);
        if let Some(scratch) = SCRATCH.get() {
            drop(fs::remove_dir_all(scratch));
        }
        process::exit(130);
    })?;
    Ok(())
}

/// Kills and reaps. A child that has ended already is fine.
fn end(child: &Arc<Mutex<Child>>) {
    let mut child = lock(child);
    drop(child.kill());
    drop(child.wait());
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
