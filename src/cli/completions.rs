//! `completions`: what a shell needs to complete this program's arguments.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Arguments, output};

/// The arguments of `completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the completions for the shell.
pub fn run(arguments: &Completions) -> anyhow::Result<()> {
    let mut command = Arguments::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, name, &mut script);
    output::print(&script)
}
