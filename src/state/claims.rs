//! Who mirrors a Hermes session, among the bridge directories under one root.
//!
//! The rule is the Python forwarder's, so that both kinds respect each other: a claim is fresh for 30 s after
//! its heartbeat; among fresh claims on one session the earlier launch wins, then the smaller directory name.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::bridge::Cursor;
use super::ledger::LOCK;
use super::lock;
use crate::ids::HermesSessionId;

/// How long a claim lives without a heartbeat.
pub const FRESH: Duration = Duration::from_secs(30);
/// How often a claim is renewed.
pub const HEARTBEAT: Duration = Duration::from_secs(10);
/// How long after a claim was laid a better one may still come from a sibling that found the session at the same
/// moment, in ms.
const CONTESTED_MS: i64 = 2_000;
/// How long a new claim gives way to such a sibling before anything is posted, in ms.
const GIVES_WAY_MS: i64 = 30;

/// Whether a mirror may post now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// Its claim holds.
    Granted,
    /// Not yet: ask again after this.
    Wait(Duration),
}

/// A claim, and what it is laid on.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The mirror's bridge directory.
    pub bridge_dir: &'a Path,
    /// The session.
    pub session: &'a HermesSessionId,
    /// When the mirror's terminal was launched, in s since the epoch.
    pub launch_epoch_s: f64,
    /// When the claim was laid, in ms since the epoch.
    pub laid_ms: i64,
    /// When it was last renewed, in ms since the epoch.
    pub renewed_ms: i64,
}

impl Claim<'_> {
    /// Whether the mirror may post at `now_ms`.
    ///
    /// Siblings are looked at only where the claim may have been lost: while it is new, and after a pause in
    /// which it was not renewed (a stopped process, a sleeping machine).
    #[must_use]
    pub fn permit(&self, now_ms: i64) -> Permit {
        let age = now_ms.saturating_sub(self.laid_ms);
        let is_new = (0..CONTESTED_MS).contains(&age);
        if !is_new && is_fresh(self.renewed_ms, now_ms) {
            return Permit::Granted;
        }
        if is_taken(self.bridge_dir, self.session, self.launch_epoch_s, now_ms) {
            return Permit::Wait(HEARTBEAT);
        }
        match u64::try_from(GIVES_WAY_MS - age) {
            Ok(left) if is_new && left > 0 && has_live_siblings(self.bridge_dir, now_ms) => {
                Permit::Wait(Duration::from_millis(left))
            }
            _ => Permit::Granted,
        }
    }
}

fn has_live_siblings(bridge_dir: &Path, now_ms: i64) -> bool {
    let (Some(root), Some(me)) = (bridge_dir.parent(), bridge_dir.file_name()) else { return false };
    let Ok(siblings) = fs::read_dir(root) else { return false };
    siblings.flatten().any(|sibling| {
        sibling.file_name() != me && is_fresh(Cursor::read(&sibling.path()).heartbeat_ms, now_ms)
    })
}

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
            && !has_ended(&sibling.path(), &theirs)
            && (theirs.launch_epoch_s < launch_epoch_s
                || (theirs.launch_epoch_s <= launch_epoch_s && name.as_os_str() < me))
    });
    sibling.map(|sibling| sibling.path())
}

/// Whether a sibling of our own kind is known to have ended: the lock beside its claim is free. Who keeps its
/// ledger elsewhere, or is a Python forwarder, is believed to live until its claim is no longer fresh.
fn has_ended(bridge_dir: &Path, cursor: &Cursor) -> bool {
    cursor.ours && lock::is_abandoned(&bridge_dir.join(LOCK))
}

/// A heartbeat from the future (a clock set back) is a live one.
fn is_fresh(heartbeat_ms: i64, now_ms: i64) -> bool {
    let age = now_ms.saturating_sub(heartbeat_ms);
    !u128::try_from(age).is_ok_and(|age| age > FRESH.as_millis())
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

    fn permit(root: &Path, launch: f64, laid_ms: i64, renewed_ms: i64) -> Permit {
        let session = &HermesSessionId::new("s");
        let bridge_dir = &root.join("m");
        Claim { bridge_dir, session, launch_epoch_s: launch, laid_ms, renewed_ms }.permit(NOW)
    }

    #[test]
    fn a_new_claim_gives_way_to_a_better_one_that_comes_at_the_same_moment() {
        let root = tempfile::tempdir().expect("tempdir");
        assert_eq!(permit(root.path(), 6.0, NOW, NOW), Permit::Granted, "nobody is near");
        claim(root.path(), "z", 9.0, NOW);
        assert_eq!(permit(root.path(), 6.0, NOW - 10, NOW), Permit::Wait(Duration::from_millis(20)));
        assert_eq!(permit(root.path(), 6.0, NOW - 30, NOW), Permit::Granted);
        claim(root.path(), "a", 5.0, NOW);
        assert_eq!(permit(root.path(), 6.0, NOW - 30, NOW), Permit::Wait(HEARTBEAT));
    }

    #[test]
    fn an_old_claim_is_questioned_only_after_a_pause() {
        let root = tempfile::tempdir().expect("tempdir");
        claim(root.path(), "a", 5.0, NOW);
        let old = NOW - 60_000;
        assert_eq!(permit(root.path(), 6.0, old, NOW - 10_000), Permit::Granted);
        assert_eq!(permit(root.path(), 6.0, old, NOW - 31_000), Permit::Wait(HEARTBEAT));
    }

    #[test]
    fn the_claim_of_one_that_was_killed_is_over_at_once() {
        let root = tempfile::tempdir().expect("tempdir");
        claim(root.path(), "a", 1.0, NOW);
        let held = lock::take(&root.path().join("a").join(LOCK), "").expect("free");
        assert!(taken(root.path(), 6.0), "its owner lives");
        drop(held);
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
