//! `serve`: a Sessions server and its page, for people without Omnigent.

use std::path::PathBuf;

use clap::Args;
use etcetera::BaseStrategy;
use etcetera::base_strategy::Xdg;
use hermes_mirror::serve::{DEFAULT_PORT, Server};

use super::exit::{self, Misuse};
use super::{browser, output};

/// The arguments of `serve`.
#[derive(Debug, Args)]
#[command(after_help = super::EXIT_CODES)]
pub struct Serve {
    /// The port, on 127.0.0.1 alone; 0 for one that is free
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Where the conversations are kept [default: `$XDG_STATE_HOME/hermes-mirror/conversations.db`, else
    /// `~/.local/state/hermes-mirror/conversations.db`]
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Show the page in the browser
    #[arg(long)]
    open: bool,
}

/// Serves until a signal.
pub fn run(arguments: Serve) -> anyhow::Result<()> {
    let data = match arguments.data {
        Some(data) => data,
        None => default_data()?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stopped = exit::stop_signal()?;
        let server = Server::bind(arguments.port, &data).await?;
        let url = server.url();
        output::print(format!("serving {url} (stop with ^C)\n").as_bytes())?;
        tracing::info!(%url, data = %data.display(), "serving");
        if arguments.open {
            browser::open(&url);
        }
        server.run(stopped).await?;
        anyhow::Ok(())
    })
}

fn default_data() -> Result<PathBuf, Misuse> {
    let base = Xdg::new().ok().and_then(|base| base.state_dir());
    let base = base.ok_or_else(|| {
        Misuse::new("cannot tell where to keep the conversations", "set HOME, or name a file with --data")
    })?;
    Ok(base.join("hermes-mirror/conversations.db"))
}
