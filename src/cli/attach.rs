//! `attach`: one mirror, described by the command line, so that a runner can start it for a terminal it has opened.

use std::path::{Path, PathBuf};

use clap::Args;
use hermes_mirror::config::rules::{self, ValueError};
use hermes_mirror::config::{self, Choice, Config, Mirror};

use super::exit::Misuse;
use super::resolve::resolve;
use super::run::start;

/// The arguments of `attach`.
#[derive(Debug, Args)]
#[command(after_help = super::EXIT_CODES)]
pub struct Attach {
    /// Address of the Omnigent server; may carry a path prefix
    #[arg(long, value_name = "URL")]
    base_url: String,
    /// The Omnigent conversation to feed
    #[arg(long, value_name = "ID")]
    conversation: String,
    /// The runner's bridge directory, where claim and cursor are kept
    #[arg(long, value_name = "DIR")]
    bridge_dir: PathBuf,
    /// The directory the Hermes terminal works in
    #[arg(long, value_name = "DIR")]
    workspace: PathBuf,
    /// When the terminal was started, in seconds since 1970-01-01 UTC
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    launch_epoch: f64,
    /// Path of state.db [default: `$HERMES_STATE_DB`, else `$HERMES_HOME/state.db`, else `~/.hermes/state.db`]
    #[arg(long, value_name = "PATH")]
    db: Option<PathBuf>,
    /// Which of Hermes's sessions may be the terminal's, by their source; give it once for each [default: cli, tui]
    #[arg(long = "source", value_name = "NAME")]
    sources: Vec<String>,
    /// The name that the model's messages carry [default: hermes-native-ui]
    #[arg(long, value_name = "NAME")]
    agent_name: Option<String>,
    /// A configuration for everything else; its own [[mirror]] tables are left aside
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Feeds the one conversation.
pub fn run(arguments: Attach) -> anyhow::Result<()> {
    let config = arguments.over_its_file()?;
    start(resolve(config)?.config, false)
}

impl Attach {
    fn over_its_file(self) -> anyhow::Result<Config> {
        obey("--base-url", rules::base_url(&self.base_url))?;
        obey("--conversation", rules::conversation(&self.conversation))?;
        obey("--launch-epoch", rules::launch_epoch(self.launch_epoch))?;
        if let Some(name) = &self.agent_name {
            obey("--agent-name", rules::not_empty(name))?;
        }
        for source in &self.sources {
            obey("--source", rules::not_empty(source))?;
        }
        let mut config = self.config.as_deref().map(config::load).transpose()?.unwrap_or_default();
        config.deliver.base_url = self.base_url;
        if let Some(db) = self.db {
            config.source.db = Some(whole("--db", &db)?);
        }
        // One process a terminal: its ledger stands where the runner keeps that terminal's other state.
        let bridge_dir = whole("--bridge-dir", &self.bridge_dir)?;
        config.state.dir.get_or_insert_with(|| bridge_dir.clone());
        config.mirror = vec![Mirror {
            conversation: self.conversation,
            matching: None,
            exclude: Choice::default(),
            db: None,
            session: None,
            workspace: Some(whole("--workspace", &self.workspace)?),
            launch_epoch: Some(self.launch_epoch),
            bridge_dir: Some(bridge_dir),
            sources: if self.sources.is_empty() { config::default_sources() } else { self.sources },
            history: None,
            agent_name: self.agent_name,
        }];
        Ok(config)
    }
}

/// Turns a rule's verdict on a flag's value into what is said of it.
pub fn obey(flag: &str, result: Result<(), ValueError>) -> Result<(), Misuse> {
    result.map_err(|error| Misuse::new(format!("{flag} {error}"), error.help))
}

/// The path from the root, so that it stays the same wherever it is used.
fn whole(flag: &str, path: &Path) -> Result<PathBuf, Misuse> {
    std::path::absolute(path)
        .map_err(|error| Misuse::new(format!("{flag} is no path: {error}"), "name a file or directory"))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "files of the tests' own")]
mod tests {
    use super::*;

    fn arguments() -> Attach {
        Attach {
            base_url: "http://127.0.0.1:1/prefix".to_owned(),
            conversation: "conv_1".to_owned(),
            bridge_dir: "/bridge".into(),
            workspace: "work".into(),
            launch_epoch: 12.5,
            db: None,
            sources: Vec::new(),
            agent_name: None,
            config: None,
        }
    }

    #[test]
    fn the_flags_make_one_mirror_and_leave_the_rest_at_its_defaults() {
        let config = arguments().over_its_file().unwrap();
        let mirror = Mirror {
            conversation: "conv_1".to_owned(),
            matching: None,
            exclude: Choice::default(),
            db: None,
            session: None,
            workspace: Some(std::env::current_dir().unwrap().join("work")),
            launch_epoch: Some(12.5),
            bridge_dir: Some("/bridge".into()),
            sources: config::default_sources(),
            history: None,
            agent_name: None,
        };
        let mut expected = Config { mirror: vec![mirror], ..Config::default() };
        expected.deliver.base_url = "http://127.0.0.1:1/prefix".to_owned();
        expected.state.dir = Some("/bridge".into());
        assert_eq!(config, expected);
    }

    #[test]
    fn the_file_gives_everything_but_its_mirrors_and_the_flags_win() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("p.toml");
        let text = "[source]\ndb = 'a.db'\n[read]\nbatch_rows = 7\n[deliver]\nbase_url = 'http://other'\n\
                    [[mirror]]\nconversation = 'other'\nsession = 's'";
        std::fs::write(&file, text).unwrap();
        let from_file = Attach { config: Some(file.clone()), ..arguments() }.over_its_file().unwrap();
        assert_eq!(from_file.read.batch_rows, 7);
        assert_eq!(from_file.source.db, Some(directory.path().join("a.db")));
        assert_eq!(from_file.deliver.base_url, "http://127.0.0.1:1/prefix");
        assert_eq!(from_file.mirror.len(), 1);
        assert_eq!(from_file.mirror[0].conversation, "conv_1");

        let flags = Attach { config: Some(file), db: Some("/b.db".into()), ..arguments() };
        assert_eq!(flags.over_its_file().unwrap().source.db, Some("/b.db".into()));
    }

    #[test]
    fn sources_that_are_named_take_the_place_of_the_default_ones() {
        let sources = vec!["telegram".to_owned(), "cli".to_owned()];
        let config = Attach { sources: sources.clone(), ..arguments() }.over_its_file().unwrap();
        assert_eq!(config.mirror[0].sources, sources);
    }

    #[test]
    fn a_value_that_no_file_may_have_is_refused_here_too() {
        for bad in [
            Attach { base_url: "http://t0ken@host".to_owned(), ..arguments() },
            Attach { conversation: "a/b".to_owned(), ..arguments() },
            Attach { launch_epoch: -1.0, ..arguments() },
            Attach { sources: vec!["cli".to_owned(), String::new()], ..arguments() },
            Attach { agent_name: Some(" ".to_owned()), ..arguments() },
            Attach { workspace: PathBuf::new(), ..arguments() },
        ] {
            let error = bad.over_its_file().unwrap_err();
            assert!(error.downcast_ref::<Misuse>().is_some());
            assert!(!format!("{error:?}").contains("t0ken"));
        }
    }
}
