//! What is to be run: words and variables that every kind of file can hold.

use std::path::Path;

use anyhow::Context;
use hermes_mirror::config::{self, Config};
use hermes_mirror::printable::printable;

use crate::cli::exit::Misuse;

/// What decides where the mirror looks; a service does not have the environment of a shell.
const VARIABLES: [&str; 3] = ["HERMES_STATE_DB", "HERMES_HOME", "XDG_STATE_HOME"];

/// A program with its arguments, and the environment that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The program's path and its arguments.
    pub command: Vec<String>,
    /// Names and values.
    pub environment: Vec<(String, String)>,
}

impl Job {
    /// This program's `run`, over a file that is valid now. Also what the file says.
    pub fn of(file: &Path) -> anyhow::Result<(Self, Config)> {
        let config = config::load(file)?;
        if config.mirror.is_empty() {
            let message = format!("{} has no [[mirror]], so there is nothing to run", file.display());
            return Err(Misuse::new(message, "add one, with `conversation` and `workspace`").into());
        }
        let program = std::env::current_exe().context("this program's own file can't be found")?;
        let file = std::path::absolute(file).context("the configuration's path can't be made whole")?;
        let command = vec![word(&program)?, "run".to_owned(), "--config".to_owned(), word(&file)?];
        let mut environment = Vec::new();
        for name in VARIABLES {
            if let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) {
                environment.push((name.to_owned(), word(Path::new(&value))?));
            }
        }
        Ok((Self { command, environment }, config))
    }
}

/// A path as a word that such a file can hold.
fn word(path: &Path) -> Result<String, Misuse> {
    let text = path.to_str().filter(|text| !text.contains(char::is_control));
    text.map(str::to_owned).ok_or_else(|| {
        let path = printable(&path.to_string_lossy());
        let message = format!("the path {path} has characters that a service's file can't hold");
        Misuse::new(message, "give it a name without control characters, in Unicode")
    })
}
