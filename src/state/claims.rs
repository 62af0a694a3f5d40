//! Who mirrors a Hermes session, among the bridge directories under one root.
//!
//! The rule is the Python forwarder's, so that both kinds respect each other: a claim is fresh for 30 s after
//! its heartbeat; among fresh claims on one session the earlier launch wins, then the smaller directory name.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::bridge::Cursor;
use crate::ids::HermesSessionId;

/// How long a claim lives without a heartbeat.
pub const FRESH: Duration = Duration::from_secs(30);
/// How often a claim is renewed.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// Whether a live sibling of `bridge_dir` has the better claim on `session`. `now_ms` is ms since the epoch.
#[must_use]
pub fn is_taken(bridge_dir: &Path, session: &HermesSessionId, launch_epoch_s: f64, now_ms: i64) -> bool {
    holder(bridge_dir, session, launch_epoch_s, now_ms).is_some()
}

/// The bridge directory of a live sibling that has the better claim on `session`.
#[must_use]
pub fn holder(
    bridge_dir: &Path,
    session: &HermesSessionId,
    launch_epoch_s: f64,
    now_ms: i64,
) -> Option<PathBuf> {
    let (root, me) = (bridge_dir.parent()?, bridge_dir.file_name()?);
    let sibling = fs::read_dir(root).ok()?.flatten().find(|sibling| {
        let name = sibling.file_name();
        if name == me || !sibling.path().is_dir() {
            return false;
        }
        let theirs = Cursor::read(&sibling.path());
        theirs.session.as_ref() == Some(session)
            && is_fresh(theirs.heartbeat_ms, now_ms)
            && (theirs.launch_epoch_s < launch_epoch_s
                || (theirs.launch_epoch_s <= launch_epoch_s && name.as_os_str() < me))
    });
    sibling.map(|sibling| sibling.path())
}

/// A heartbeat from the future (a clock set back) is a live one.
fn is_fresh(heartbeat_ms: i64, now_ms: i64) -> bool {
    let age = now_ms.saturating_sub(heartbeat_ms);
    u128::try_from(age).is_ok_and(|age| age > FRESH.as_millis()).eq(&false)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "files of the tests' own")]
mod tests {
    use super::super::bridge::Bridge;
    use super::*;
    use crate::event::{Binding, Resume};

    const NOW: i64 = 1_000_000;

    fn claim(root: &Path, name: &str, launch: f64, heartbeat_ms: i64) {
        let mut bridge = Bridge::open(root.join(name), launch).expect("bridge");
        let binding = Binding { session: HermesSessionId::new("s"), resume: Resume::default() };
        bridge.bind(&binding, heartbeat_ms).expect("bind");
    }

    fn taken(root: &Path, launch: f64) -> bool {
        is_taken(&root.join("m"), &HermesSessionId::new("s"), launch, NOW)
    }

    #[test]
    fn the_earlier_launch_has_the_better_claim_then_the_smaller_name() {
        let root = tempfile::tempdir().expect("tempdir");
        claim(root.path(), "z", 5.0, NOW);
        assert!(taken(root.path(), 6.0));
        assert!(!taken(root.path(), 4.0));
        assert!(!taken(root.path(), 5.0), "m is smaller than z");
        claim(root.path(), "a", 5.0, NOW);
        assert!(taken(root.path(), 5.0), "a is smaller than m");
    }

    #[test]
    fn a_claim_without_a_heartbeat_for_30_s_is_over() {
        let root = tempfile::tempdir().expect("tempdir");
        claim(root.path(), "a", 1.0, NOW - 30_000);
        assert!(taken(root.path(), 6.0));
        claim(root.path(), "a", 1.0, NOW - 30_001);
        assert!(!taken(root.path(), 6.0));
    }

    #[test]
    fn another_session_an_own_claim_and_rubbish_take_nothing() {
        let root = tempfile::tempdir().expect("tempdir");
        claim(root.path(), "m", 1.0, NOW);
        std::fs::write(root.path().join("file"), b"x").expect("write");
        assert!(!taken(root.path(), 6.0));
        claim(root.path(), "a", 1.0, NOW);
        assert!(!is_taken(&root.path().join("m"), &HermesSessionId::new("other"), 6.0, NOW));
    }
}
