//! `run`: every mirror of the file.

use std::path::PathBuf;

use clap::Args;
use hermes_mirror::config::{self, Config};

use super::exit::Misuse;
use super::resolve::resolve;

/// The arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = super::EXIT_CODES)]
pub struct Run {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "pipeline.toml")]
    config: PathBuf,
    /// Deliver what is there and exit, instead of waiting for more
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

/// Runs the pipeline until a signal, or with `once` until everything that is there is delivered.
pub fn start(_config: Config, _once: bool) -> anyhow::Result<()> {
    Err(anyhow::anyhow!("not wired yet"))
}
