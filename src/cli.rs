//! The command line: what can be asked for, and who answers it.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod attach;
mod browser;
mod check;
mod completions;
mod dead_letters;
mod demo;
pub mod exit;
mod finding;
mod init;
mod log_writer;
mod man;
mod output;
mod progress;
mod resolve;
mod run;
mod schema;
mod serve;
mod service;
mod sessions;
mod status;
mod table;
mod tail;
pub mod telemetry;
mod when;
mod world;

/// Help is laid out for this many columns whatever the terminal, so that it reads the same everywhere.
const HELP_WIDTH: usize = 100;

const EXIT_CODES: &str = "\
Exit codes:
  0  ok
  1  failed
  2  usage or configuration";

/// Shows a Hermes Agent terminal session in an Omnigent conversation, the instant each message is stored.
#[derive(Debug, Parser)]
#[command(name = "hermes-mirror", version, term_width = HELP_WIDTH, after_help = EXIT_CODES)]
pub struct Arguments {
    /// What is logged, and how.
    #[command(flatten)]
    pub log: telemetry::Options,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// See it work, with nothing but this program
    Demo(demo::Demo),
    /// Write a first configuration, from what is found here
    Init(init::Init),
    /// Feed every [[mirror]] of the configuration, until a signal
    Run(run::Run),
    /// Feed one conversation, named on the command line, until a signal
    Attach(attach::Attach),
    /// Say what is wrong before it hurts: first the configuration, then the world around it
    Check(check::Check),
    /// Say how a running mirror stands
    Status(status::Status),
    /// List the sessions of Hermes's database
    Sessions(sessions::Sessions),
    /// Show a session's items on the terminal, as they would be sent
    Tail(tail::Tail),
    /// See what the server would not take, send it again or throw it away
    DeadLetters(dead_letters::DeadLetters),
    /// Keep conversations and show them on a page, for people without Omnigent
    Serve(serve::Serve),
    /// Have the system run the mirror, from login on and again after a failure
    Service(service::Service),
    /// Print the JSON Schema of the configuration
    Schema,
    /// Print the completions for a shell
    Completions(completions::Completions),
    /// Print a manual page
    Man(man::Man),
}

impl Command {
    /// Whether it says on stdout what it does, so that the log need not say it as well.
    pub fn is_talkative(&self) -> bool {
        matches!(self, Self::Demo(_) | Self::Serve(_))
    }
}

/// Hands the command to the module that answers it.
pub fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Demo(arguments) => return demo::run(&arguments),
        Command::Init(arguments) => init::run(&arguments)?,
        Command::Run(arguments) => run::run(&arguments)?,
        Command::Attach(arguments) => attach::run(arguments)?,
        Command::Check(arguments) => return check::run(&arguments),
        Command::Status(arguments) => return status::run(&arguments),
        Command::Sessions(arguments) => sessions::run(arguments)?,
        Command::Tail(arguments) => tail::run(arguments)?,
        Command::DeadLetters(arguments) => return dead_letters::run(&arguments),
        Command::Serve(arguments) => serve::run(arguments)?,
        Command::Service(arguments) => return service::run(&arguments),
        Command::Schema => schema::run()?,
        Command::Completions(arguments) => completions::run(&arguments)?,
        Command::Man(arguments) => man::run(&arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_contradicts_nowhere_itself() {
        super::Arguments::command().debug_assert();
    }
}
