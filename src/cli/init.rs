//! `init`: a first configuration, from what is found here.

use std::fmt::Write;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use hermes_mirror::config::{self, Deliver, rules};
use hermes_mirror::hermes::locate::{self, Location, Origin};
use hermes_mirror::state::dir;

use super::attach::obey;
use super::exit::{Misuse, Obstacle};
use super::finding::{self, Level};
use super::resolve::short;
use super::{output, world};

const NOTES: &str = "\
It looks for Hermes's database where HERMES_STATE_DB or HERMES_HOME say, else in ~/.hermes and its profiles, and asks \
the server whether it is there. It writes the one file, and never over another.

Exit codes:
  0  ok, also where the server does not answer: it is waited for
  1  failed, or there is no Hermes
  2  usage, the file is there already, or it is not clear which Hermes is meant";

/// The arguments of `init`.
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct Init {
    /// The file to write
    #[arg(long, value_name = "FILE", default_value = "pipeline.toml")]
    config: PathBuf,
    /// Address of the Omnigent server [default: `http://127.0.0.1:6767`]
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The directory that Hermes is started in [default: this one]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
}

/// What is written into the file, as text.
struct Places {
    database: String,
    server: String,
    workspace: String,
}

/// Writes the file, and says what to do next.
pub fn run(arguments: &Init) -> anyhow::Result<()> {
    let file = &arguments.config;
    if file.symlink_metadata().is_ok() {
        return Err(exists(file).into());
    }
    let home = etcetera::home_dir().ok();
    let server = arguments.base_url.clone().unwrap_or_else(|| Deliver::default().base_url);
    obey("--base-url", rules::base_url(&server))?;
    let places = Places {
        server,
        workspace: written("the workspace", &workspace(arguments.workspace.as_deref())?, home.as_deref())?,
        database: written("the database", &database(home.as_deref())?, home.as_deref())?,
    };
    let text = places.file();
    let name = file.display();
    let mut config = config::parse(&text, &name.to_string()).context("what would be written is not valid")?;
    dir::write_new(file, &text).map_err(|error| unwritten(file, &error))?;
    // The question is whether there is a server; it may know nothing yet of a conversation.
    config.mirror.clear();
    let mut findings = world::ask_server(&config, &[])?;
    for finding in findings.iter_mut().filter(|finding| finding.level == Level::Fail) {
        finding.level = Level::Warn;
    }
    let Places { database, workspace, .. } = &places;
    let text = format!(
        "{name} written\n  database   {database}\n  workspace  {workspace}\n{}next: {}\n",
        finding::render(&findings),
        next(file)
    );
    output::print(text.as_bytes())
}

fn exists(file: &Path) -> Misuse {
    let message = format!("{} is there already, and stays as it is", file.display());
    Misuse::new(
        message,
        "change it by hand and try it with `hermes-mirror check`, or name another file: --config FILE",
    )
}

fn unwritten(file: &Path, error: &std::io::Error) -> anyhow::Error {
    if error.kind() == ErrorKind::AlreadyExists {
        return exists(file).into();
    }
    let message = format!("cannot write {}: {error}", file.display());
    Obstacle::new(message, "name a file in a directory that is there and that you may write: --config FILE")
        .into()
}

/// The directory that is named, else this one; from the root, with the links in its name as they are.
fn workspace(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let path = named.unwrap_or(Path::new(""));
    let path = std::env::current_dir().context("this directory can't be named")?.join(path);
    if path.is_dir() {
        return Ok(path.components().collect());
    }
    let message = format!("--workspace: {} is not a directory", path.display());
    Err(Misuse::new(message, "name the directory that Hermes is started in").into())
}

/// The one database that can be meant.
fn database(home: Option<&Path>) -> anyhow::Result<PathBuf> {
    let Location { path, origin } = locate::database(None, |name| std::env::var_os(name), home)
        .map_err(|error| Misuse::new(error.to_string(), error.help()))?;
    let path = std::path::absolute(&path).unwrap_or(path);
    let mut found = if origin == Origin::Default { locate::profiles(&path) } else { Vec::new() };
    if path.is_file() {
        found.insert(0, path.clone());
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => {
            let message = format!("Hermes has no database yet at {} (from {origin})", path.display());
            let help = "start Hermes and say something, which makes it; or say where it is: HERMES_HOME=DIR \
                        hermes-mirror init";
            Err(Obstacle::new(message, help).into())
        }
        [.., last] => {
            let names: Vec<String> = found.iter().map(|path| short(path, home)).collect();
            let message = format!("several Hermes profiles have a database: {}", names.join(", "));
            let directory = short(last.parent().unwrap_or(last), home);
            let help = format!("choose one, for example: HERMES_HOME={directory} hermes-mirror init");
            Err(Misuse::new(message, help).into())
        }
    }
}

/// A path as it stands in the file.
fn written(what: &str, path: &Path, home: Option<&Path>) -> Result<String, Misuse> {
    if path.to_str().is_some() {
        return Ok(short(path, home));
    }
    let message = format!("{what} {} is not Unicode, and a TOML file is", path.display());
    Err(Misuse::new(message, "give the directory another name, or a link to it"))
}

impl Places {
    fn file(&self) -> String {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        format!(
            "\
# hermes-mirror: every other setting has a default, see `hermes-mirror schema`. After a change: `hermes-mirror check`.

[source]
# Where Hermes keeps its sessions.
db = {database}

[deliver]
# The Omnigent server.
base_url = {server}

# For a server with a login: where the token is. Take the `#` away.
#[deliver.auth.file]
#path = \"~/.config/omnigent/token\"

[[mirror]]
# A conversation is made for the session, and kept.
conversation = \"new\"
# The directory that Hermes is started in.
workspace = {workspace}
",
            database = quoted(&self.database),
            server = quoted(&self.server),
            workspace = quoted(&self.workspace),
        )
    }
}

/// What to run now.
fn next(file: &Path) -> String {
    let mut option = String::new();
    if file != Path::new("pipeline.toml") {
        let name = file.to_string_lossy();
        let is_plain = name.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
        let name = if is_plain { name.into_owned() } else { format!("'{}'", name.replace('\'', "'\\''")) };
        // Writing to a String can't fail.
        let _ = write!(option, " --config {name}");
    }
    format!(
        "`hermes-mirror check{option}`, then `hermes-mirror run{option}`, or to have it run always\n      \
         `hermes-mirror service install{option}`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_says_the_same_when_it_is_read_whatever_the_names() {
        let odd = "/w/a \"b\" \\ #c\u{7f}é";
        let places =
            Places { database: odd.to_owned(), server: "http://h:1/p".to_owned(), workspace: odd.to_owned() };
        let config = config::parse(&places.file(), "/p/pipeline.toml").expect("valid");
        assert_eq!(config.source.db.as_deref(), Some(Path::new(odd)));
        assert_eq!(config.deliver.base_url, "http://h:1/p");
        let [mirror] = config.mirror.as_slice() else { panic!("{} mirrors", config.mirror.len()) };
        assert_eq!(mirror.workspace.as_deref(), Some(Path::new(odd)));
        assert_eq!(mirror.conversation, "new");
    }

    #[test]
    fn a_file_with_an_odd_name_is_quoted_for_the_shell() {
        assert!(next(Path::new("pipeline.toml")).starts_with("`hermes-mirror check`, then"));
        assert!(next(Path::new("a/b.toml")).contains("check --config a/b.toml`"));
        assert!(next(Path::new("a b's")).contains("run --config 'a b'\\''s'`"));
    }
}
