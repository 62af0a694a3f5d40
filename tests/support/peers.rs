//! Where the real programs are that `scripts/peers` installed.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::{Path, PathBuf};

/// The real programs.
pub struct Peers {
    /// The Python that can import Hermes Agent's modules.
    pub hermes_python: PathBuf,
    /// The `omnigent` command.
    pub omnigent: PathBuf,
}

/// Finds the peers below `$HERMES_MIRROR_PEERS`, else `./peers`.
///
/// Where they are missing the test is skipped, saying so, and `None` is returned; with `CI` or
/// `HERMES_MIRROR_REQUIRE_PEERS` set that fails the test instead.
pub fn peers() -> Option<Peers> {
    let root = root();
    let found =
        Peers { hermes_python: root.join("hermes/bin/python"), omnigent: root.join("omnigent/bin/omnigent") };
    are_there(&[&found.hermes_python, &found.omnigent]).then_some(found)
}

/// The Python that runs Hermes's modules, and where those of `version` are; the version that the Python's own
/// environment holds has none beside it. Where something is missing, as for [`peers`].
pub fn hermes(version: &str) -> Option<(PathBuf, Option<PathBuf>)> {
    let root = root();
    let python = root.join("hermes/bin/python");
    let modules = (version != OWN_VERSION).then(|| root.join(format!("hermes-{version}")));
    let state = modules.as_ref().map_or_else(|| python.clone(), |modules| modules.join("hermes_state.py"));
    are_there(&[&python, &state]).then_some((python, modules))
}

/// The version in the Python's own environment.
const OWN_VERSION: &str = "0.19.0";

fn root() -> PathBuf {
    std::env::var_os("HERMES_MIRROR_PEERS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("peers"), PathBuf::from)
}

fn are_there(peers: &[&PathBuf]) -> bool {
    let missing: Vec<_> = peers.iter().filter(|p| !p.exists()).collect();
    if missing.is_empty() {
        return true;
    }
    let required = ["CI", "HERMES_MIRROR_REQUIRE_PEERS"].iter().any(|v| std::env::var_os(v).is_some());
    assert!(!required, "a real peer is missing: {missing:?}; install it with scripts/peers");
    eprintln!("SKIPPED: a real peer is missing: {missing:?}; install it with scripts/peers");
    false
}
