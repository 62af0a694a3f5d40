//! Where the real programs are that `scripts/peers` installed.

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
    let root = std::env::var_os("HERMES_MIRROR_PEERS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("peers"), PathBuf::from);
    let found =
        Peers { hermes_python: root.join("hermes/bin/python"), omnigent: root.join("omnigent/bin/omnigent") };
    let missing: Vec<_> =
        [&found.hermes_python, &found.omnigent].into_iter().filter(|p| !p.exists()).collect();
    if missing.is_empty() {
        return Some(found);
    }
    let required = ["CI", "HERMES_MIRROR_REQUIRE_PEERS"].iter().any(|v| std::env::var_os(v).is_some());
    assert!(!required, "a real peer is missing: {missing:?}; install it with scripts/peers");
    eprintln!("SKIPPED: a real peer is missing: {missing:?}; install it with scripts/peers");
    None
}
