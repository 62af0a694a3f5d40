//! `man`: the manual, page by page.

use clap::{Args, CommandFactory};

use super::exit::Misuse;
use super::{Arguments, output};

/// The arguments of `man`.
#[derive(Debug, Args)]
pub struct Man {
    /// The subcommand whose page to print, word by word; without it, the page of the program
    #[arg(value_name = "COMMAND")]
    subcommand: Vec<String>,
}

/// Prints a page, in roff.
pub fn run(arguments: &Man) -> anyhow::Result<()> {
    let mut program = Arguments::command();
    program.build();
    let mut page = program;
    for name in &arguments.subcommand {
        page = page.find_subcommand(name).cloned().ok_or_else(|| {
            Misuse::new(
                format!("there is no subcommand `{name}`"),
                "see `hermes-mirror --help` for their names",
            )
        })?;
    }
    let title = page.get_display_name().unwrap_or(page.get_name()).to_owned();
    let mut roff = Vec::new();
    clap_mangen::Man::new(page)
        .title(title)
        .source(concat!("hermes-mirror ", env!("CARGO_PKG_VERSION")))
        .render(&mut roff)?;
    output::print(&roff)
}
