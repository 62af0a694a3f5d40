//! From an error to what is printed about it and the exit code.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::process::ExitCode;

use hermes_mirror::config::ConfigError;
use hermes_mirror::demo::DemoError;
use hermes_mirror::serve::ServeError;
use tokio::signal::unix::{SignalKind, signal};

/// The request or its configuration is wrong, so trying again changes nothing.
const MISUSE: u8 = 2;

/// A request that can't be carried out as it was made.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Misuse {
    /// What is wrong with it.
    pub message: String,
    /// What to ask for instead.
    pub help: String,
}

impl Misuse {
    /// A request that is wrong in the way `message` says, and how `help` mends it.
    pub fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: help.into() }
    }
}

/// A request that can't be carried out as the world is now.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Obstacle {
    /// What is in the way.
    pub message: String,
    /// How it is put out of the way.
    pub help: String,
}

impl Obstacle {
    /// An obstacle that `message` names, and that `help` removes.
    pub fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: help.into() }
    }
}

/// Prints the error with its causes and its help to stderr, and says which exit code it has.
pub fn report(error: &anyhow::Error) -> ExitCode {
    let text = render(error, color(&io::stderr()));
    // Where nobody reads stderr any more, the exit code still tells.
    let _ = writeln!(io::stderr().lock(), "{text}");
    code(error)
}

/// Whether to write colors to a stream: only to a terminal, and never where `NO_COLOR` is set.
pub fn color(stream: &impl IsTerminal) -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    stream.is_terminal() && !refused
}

/// Is ready at the first SIGINT or SIGTERM from now on.
pub fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
    })
}

fn code(error: &anyhow::Error) -> ExitCode {
    let misuse = find::<Misuse>(error).is_some() || find::<ConfigError>(error).is_some();
    if misuse { ExitCode::from(MISUSE) } else { ExitCode::FAILURE }
}

fn render(error: &anyhow::Error, color: bool) -> String {
    if let Some(error) = find::<ConfigError>(error) {
        return error.render(color);
    }
    let (red, bold, plain) = if color { ("\x1b[1;31m", "\x1b[1m", "\x1b[0m") } else { ("", "", "") };
    // Writing to a String can't fail.
    let mut text = format!("{red}error{plain}{bold}: {error}{plain}");
    for cause in error.chain().skip(1) {
        let _ = write!(text, "\n  caused by: {cause}");
    }
    if let Some(help) = help(error) {
        let _ = write!(text, "\n{bold}help{plain}: {help}");
    }
    text
}

/// What the first error of the chain that knows it says is to be done.
fn help(error: &anyhow::Error) -> Option<&str> {
    let misuse = find::<Misuse>(error).map(|misuse| misuse.help.as_str());
    misuse
        .or_else(|| Some(find::<Obstacle>(error)?.help.as_str()))
        .or_else(|| find::<ServeError>(error)?.help())
        .or_else(|| find::<DemoError>(error)?.help())
}

fn find<E: std::error::Error + 'static>(error: &anyhow::Error) -> Option<&E> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use hermes_mirror::config::parse;

    use super::*;

    #[test]
    fn an_error_shows_its_causes_and_its_help() {
        let error = Err::<(), _>(Misuse::new("no", "say yes")).context("while asking").unwrap_err();
        assert_eq!(render(&error, false), "error: while asking\n  caused by: no\nhelp: say yes");
        assert!(render(&error, true).contains("\x1b[1;31merror"));
    }

    #[test]
    fn what_the_user_can_mend_has_its_own_exit_code() {
        let config = anyhow::Error::from(parse("a", "p.toml").unwrap_err());
        let misuse = anyhow::Error::from(Misuse::new("m", "h")).context("outer");
        assert_eq!(code(&config), ExitCode::from(2));
        assert_eq!(code(&misuse), ExitCode::from(2));
        assert_eq!(code(&anyhow::anyhow!("other")), ExitCode::from(1));
    }
}
