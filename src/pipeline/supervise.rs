//! A stage that fails is started again: after 1 s, doubling to 30 s, from 1 s again once it ran for a minute.
//!
//! What the library can foresee is no failure: a database that is missing, locked or damaged and a server that
//! is away are states, which the stages bear themselves. What is left is a defect, and it must not end the mirror.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crossbeam_channel::Receiver;

use crate::retry::Supervision;

/// Runs a stage on its own thread until it returns; starts it again when it panics.
///
/// `stop` ends the wait between two starts.
pub fn stage(name: &'static str, stop: &Receiver<()>, mut run: impl FnMut()) {
    let mut supervision = Supervision::default();
    loop {
        let started = Instant::now();
        let Err(panic) = catch_unwind(AssertUnwindSafe(&mut run)) else { return };
        let wait = supervision.failed(started.elapsed());
        announce(name, supervision.failures(), panic.as_ref(), wait.as_secs());
        if stop.recv_timeout(wait) != Err(crossbeam_channel::RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// Logs a stage's failure: the first of a row as an error, those that follow rarely louder than debug.
pub fn announce(name: &str, failures: u32, panic: &(dyn Any + Send), wait_s: u64) {
    let cause = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "of an unknown cause".to_owned());
    if failures == 1 || failures.is_power_of_two() {
        tracing::error!(stage = name, failures, "failed: {cause}; starting it again in {wait_s} s");
    } else {
        tracing::debug!(stage = name, failures, "failed: {cause}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_that_fails_is_started_again_with_what_it_had() {
        let (_stop, stopped) = crossbeam_channel::bounded::<()>(0);
        let mut runs = 0;
        stage("test", &stopped, || {
            runs += 1;
            assert!(runs > 1, "the first run fails");
        });
        assert_eq!(runs, 2);
    }

    #[test]
    fn a_stop_ends_the_wait_for_the_next_start() {
        let (stop, stopped) = crossbeam_channel::bounded::<()>(0);
        drop(stop);
        let mut runs = 0;
        stage("test", &stopped, || {
            runs += 1;
            panic!("always");
        });
        assert_eq!(runs, 1);
    }
}
