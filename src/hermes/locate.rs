//! Where Hermes keeps its sessions: the same answer that Hermes itself and its other readers give.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

/// The file's name below Hermes's home directory.
const FILE_NAME: &str = "state.db";

/// What decided which database it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `[source] db`, or `--db`.
    Configuration,
    /// The environment variable `HERMES_STATE_DB`.
    StateDb,
    /// The environment variable `HERMES_HOME`.
    HermesHome,
    /// Nothing: it is the default below the home directory.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Configuration => "the configuration",
            Self::StateDb => "HERMES_STATE_DB",
            Self::HermesHome => "HERMES_HOME",
            Self::Default => "the default",
        })
    }
}

/// A database's path and what decided it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The database, whether it exists already or not.
    pub path: PathBuf,
    /// What decided it.
    pub origin: Origin,
}

/// There is no home directory to look below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot tell where Hermes keeps its sessions: there is no home directory")]
pub struct NoHome;

impl NoHome {
    /// What to do about it.
    #[must_use]
    pub const fn help(self) -> &'static str {
        "set HOME, HERMES_HOME or HERMES_STATE_DB, or write `db = \"…\"` in [source]"
    }
}

/// The path of state.db: what the configuration says, else `$HERMES_STATE_DB`, else `$HERMES_HOME/state.db`, else
/// `~/.hermes/state.db`. A variable that is blank counts as not set. `variable` looks one up, `home` is `~`.
pub fn database(
    configured: Option<&Path>,
    variable: impl Fn(&str) -> Option<OsString>,
    home: Option<&Path>,
) -> Result<Location, NoHome> {
    if let Some(path) = configured {
        return Ok(Location { path: path.to_owned(), origin: Origin::Configuration });
    }
    let set = |name: &str| variable(name).map(trimmed).filter(|value| !value.is_empty());
    if let Some(path) = set("HERMES_STATE_DB") {
        return Ok(Location { path: path.into(), origin: Origin::StateDb });
    }
    if let Some(directory) = set("HERMES_HOME") {
        return Ok(Location { path: Path::new(&directory).join(FILE_NAME), origin: Origin::HermesHome });
    }
    let home = home.ok_or(NoHome)?;
    Ok(Location { path: home.join(".hermes").join(FILE_NAME), origin: Origin::Default })
}

/// The databases of the profiles that stand beside a default one: `profiles/NAME/state.db` below its directory.
#[must_use]
pub fn profiles(database: &Path) -> Vec<PathBuf> {
    let below = database.parent().unwrap_or(Path::new("")).join("profiles");
    let entries = std::fs::read_dir(below).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.path().join(FILE_NAME)).filter(|path| path.is_file()).collect();
    found.sort();
    found
}

/// The value without blanks at its ends; one that is not Unicode stays as it is.
fn trimmed(value: OsString) -> OsString {
    value.to_str().map(str::trim).map(OsStr::new).map(OsStr::to_owned).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locate(
        configured: Option<&str>,
        variables: &[(&str, &str)],
        home: Option<&str>,
    ) -> Option<(String, Origin)> {
        let lookup = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        };
        let found = database(configured.map(Path::new), lookup, home.map(Path::new)).ok()?;
        Some((found.path.display().to_string(), found.origin))
    }

    #[test]
    fn the_configuration_comes_first_then_the_variables_then_the_default() {
        let both = [("HERMES_STATE_DB", "/s.db"), ("HERMES_HOME", "/hh")];
        let home = Some("/home/ada");
        let is = |path: &str, origin| Some((path.to_owned(), origin));
        assert_eq!(locate(Some("/c.db"), &both, home), is("/c.db", Origin::Configuration));
        assert_eq!(locate(None, &both, home), is("/s.db", Origin::StateDb));
        assert_eq!(locate(None, &both[1..], home), is("/hh/state.db", Origin::HermesHome));
        assert_eq!(locate(None, &[], home), is("/home/ada/.hermes/state.db", Origin::Default));
    }

    #[test]
    fn a_blank_variable_is_not_set() {
        let blank = [("HERMES_STATE_DB", "  "), ("HERMES_HOME", "")];
        assert_eq!(
            locate(None, &blank, Some("/h")),
            Some(("/h/.hermes/state.db".to_owned(), Origin::Default))
        );
        let padded = [("HERMES_HOME", " /hh\n")];
        assert_eq!(locate(None, &padded, None), Some(("/hh/state.db".to_owned(), Origin::HermesHome)));
    }

    #[test]
    fn a_home_is_needed_only_for_the_default() {
        assert_eq!(locate(None, &[], None), None);
        assert!(locate(None, &[("HERMES_HOME", "/hh")], None).is_some());
        assert!(!NoHome.help().is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_is_not_unicode_is_kept() {
        use std::os::unix::ffi::OsStringExt;
        let odd = OsString::from_vec(vec![b'/', 0xff]);
        let found = database(None, |name| (name == "HERMES_STATE_DB").then(|| odd.clone()), None).unwrap();
        assert_eq!(found.path.as_os_str(), odd);
    }
}
