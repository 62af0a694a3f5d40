//! `run`: every mirror of the file.

use std::path::PathBuf;

use clap::Args;
use hermes_mirror::config::{self, Config};
use hermes_mirror::pipeline::{Drain, Mode, Pipeline};
use hermes_mirror::state::dir;
use hermes_mirror::status;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::exit::Misuse;
use super::resolve::resolve;
use super::{log_writer, progress};

/// The arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = super::EXIT_CODES)]
pub struct Run {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "pipeline.toml")]
    config: PathBuf,
    /// Deliver what is there and exit, instead of waiting for more; a server that is away is waited for
    #[arg(long)]
    once: bool,
}

/// Feeds every mirror of the file.
pub fn run(arguments: &Run) -> anyhow::Result<()> {
    let config = config::load(&arguments.config)?;
    if config.mirror.is_empty() {
        let message = format!("{} has no [[mirror]], so there is nothing to do", arguments.config.display());
        return Err(Misuse::new(message, "add one, with `conversation` and `workspace`").into());
    }
    start(resolve(config)?.config, arguments.once)
}

/// The first SIGINT or SIGTERM stops, the second one does so at once.
async fn pass_on(mut interrupt: Signal, mut terminate: Signal, to: [oneshot::Sender<()>; 2]) {
    for sender in to {
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        // Who has ended needs no word of it.
        let _ = sender.send(());
    }
}

/// Runs the pipeline until a signal, or with `once` until everything that is there is delivered.
pub fn start(config: Config, once: bool) -> anyhow::Result<()> {
    let mode = if once { Mode::Once } else { Mode::Follow };
    let (drain_ms, state_dir) = (config.deliver.drain_ms, dir::root(&config.state)?);
    let shown = config.status.clone();
    let pipeline = Pipeline::new(config, |name| std::env::var(name).ok())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let (stop, stopped) = oneshot::channel();
        let (hurry, hurried) = oneshot::channel();
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::spawn(pass_on(interrupt, terminate, [stop, hurry]));
        let _watch = status::watch(pipeline.stats(), &shown, &state_dir).await;
        tokio::spawn(progress::report(pipeline.backlog()));
        tracing::debug!("started");
        let shutdown = async {
            // The sender outlives the pipeline, so this is ready at a signal and no sooner.
            let _ = stopped.await;
            tracing::info!(
                at_most_ms = drain_ms,
                "stopping, once what was read is delivered; again to stop at once"
            );
        };
        let hurry = async {
            let _ = hurried.await;
        };
        anyhow::Ok(pipeline.run(mode, shutdown, hurry).await?)
    })?;
    log_writer::renew("");
    match ended.drain {
        Drain::Complete if once && ended.bound < ended.mirrors => {
            tracing::warn!("{} of {} mirrors found no session", ended.mirrors - ended.bound, ended.mirrors);
        }
        Drain::Complete => {}
        Drain::OutOfTime => {
            tracing::warn!("stopped before everything was delivered; the rest follows at the next start");
        }
        Drain::Incomplete => {
            anyhow::bail!("not everything was delivered; the rest follows at the next start")
        }
    }
    Ok(())
}
