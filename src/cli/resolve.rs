//! From a valid configuration to one that names every place it uses.

use std::path::Path;

use etcetera::BaseStrategy;
use etcetera::base_strategy::Xdg;
use hermes_mirror::config::{self, Config, ConfigError};
use hermes_mirror::hermes::locate::{self, Location};

use super::exit::Misuse;

/// Read where no `--config` is given, if it is there, as by `run`.
const USUAL: &str = "pipeline.toml";

/// The configuration that is named, else the one of this directory, else none but the defaults.
pub fn load_if_any(named: Option<&Path>) -> Result<Config, ConfigError> {
    let usual = Path::new(USUAL);
    let path = named.or_else(|| usual.exists().then_some(usual));
    Ok(path.map(config::load).transpose()?.unwrap_or_default())
}

/// A configuration in which the paths of state.db and of the state directory stand.
pub struct Resolved {
    /// The configuration.
    pub config: Config,
    /// Where state.db is, and what decided it.
    pub database: Location,
}

/// Fills in what depends on the environment.
pub fn resolve(mut config: Config) -> Result<Resolved, Misuse> {
    let home = etcetera::home_dir().ok();
    let database =
        locate::database(config.source.db.as_deref(), |name| std::env::var_os(name), home.as_deref())
            .map_err(|error| Misuse::new(error.to_string(), error.help()))?;
    let path = std::path::absolute(&database.path).unwrap_or_else(|_| database.path.clone());
    let database = Location { path, ..database };
    tracing::debug!(path = %database.path.display(), origin = %database.origin, "located the database");
    config.source.db = Some(database.path.clone());
    if config.state.dir.is_none() {
        let base = Xdg::new().map_err(|error| {
            Misuse::new(
                format!("cannot tell where to keep the mirror's own files: {error}"),
                "set HOME, or write `dir = \"…\"` in [state]",
            )
        })?;
        config.state.dir = base.state_dir().map(|dir| dir.join("hermes-mirror"));
    }
    Ok(Resolved { config, database })
}

/// A path with the home directory as `~`, as it may stand in a configuration.
pub fn short(path: &Path, home: Option<&Path>) -> String {
    match home.and_then(|home| path.strip_prefix(home).ok()) {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    }
}
