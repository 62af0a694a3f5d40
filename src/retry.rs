//! What is done about a failure, and how long is waited before the next attempt.
//!
//! # The table
//!
//! The question behind each row: may the server have acted, and does the answer speak of this item, of the
//! conversation, of us, or of the moment?
//!
//! | failure | verdict | reason |
//! |---|---|---|
//! | no connection, also not in time | [`Retry`](Verdict::Retry) | nothing was sent |
//! | 408, 425, 429 | [`Retry`](Verdict::Retry) | the server says that it did not act, and to come again |
//! | time-out after sending, connection lost | [`ReadBack`](Verdict::ReadBack) | it may have been stored, with the answer lost |
//! | 1xx, 2xx with a body that is not the API's | [`ReadBack`](Verdict::ReadBack) | something answered, perhaps not the server |
//! | 5xx but 501 and 511 | [`ReadBack`](Verdict::ReadBack) | may come after the commit, or from a proxy that lost the server's answer |
//! | 3xx, 401, 403 | [`RefreshToken`](Verdict::RefreshToken) | the login is missing or over; a login page stands behind a redirect. Nothing was stored |
//! | 407, 511 | [`RefreshToken`](Verdict::RefreshToken) | a proxy or network between wants a login: the same wait for a person, and no item's fault |
//! | no token | [`RefreshToken`](Verdict::RefreshToken) | its source failed; it may not the next time |
//! | 404, 410 | [`Park`](Verdict::Park) | the conversation is unknown or gone. A server that starts, or a proxy before it, says so for a while, too |
//! | 405, 501 | [`Park`](Verdict::Park) | the call itself is unknown, so each item would fare the same: to set this one aside would set all aside |
//! | 400, 413, 422, other 4xx | [`DeadLetter`](Verdict::DeadLetter) | the server will never take this item; the ones behind it must not wait |
//! | 600 and above, below 100 | [`ReadBack`](Verdict::ReadBack) | no HTTP; nothing is known |

use std::time::Duration;

use backoff::ExponentialBackoff;
use backoff::backoff::Backoff as _;

use crate::config;
use crate::omnigent::{Fault, FaultKind};

/// What is to be done about a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It was not acted on: send it again after a wait.
    Retry,
    /// It may have been acted on: read the conversation's tail before sending it again.
    ReadBack,
    /// We are not let in: read the token again and try once more; then hold the lane and say "log in".
    RefreshToken,
    /// The conversation can't be posted to: try for a while, then leave it alone.
    Park,
    /// This item will never be taken: set it aside and go on with the next.
    DeadLetter,
}

/// Sorts a failure by the table above.
#[must_use]
pub fn verdict(fault: &Fault) -> Verdict {
    match fault.kind {
        FaultKind::Connect | FaultKind::Timeout { sent: false } => Verdict::Retry,
        FaultKind::Timeout { sent: true } | FaultKind::Broken | FaultKind::BadAnswer => Verdict::ReadBack,
        FaultKind::Token => Verdict::RefreshToken,
        FaultKind::Status(code) => match code {
            408 | 425 | 429 => Verdict::Retry,
            300..=399 | 401 | 403 | 407 | 511 => Verdict::RefreshToken,
            404 | 405 | 410 | 501 => Verdict::Park,
            400..=499 => Verdict::DeadLetter,
            _ => Verdict::ReadBack,
        },
    }
}

/// The waits between attempts: each longer than the last, scattered a little, up to a limit.
///
/// The only place that knows the `backoff` crate, of which the exponential policy alone is used.
#[derive(Debug)]
pub struct Backoff {
    policy: ExponentialBackoff,
    longest: Duration,
    longest_retry_after: Duration,
    tries: u32,
}

impl Backoff {
    /// The waits that `[deliver.retry]` describes.
    #[must_use]
    pub fn new(retry: &config::Retry) -> Self {
        Self::build(
            Duration::from_millis(retry.initial_ms),
            Duration::from_millis(retry.max_ms),
            retry.multiplier,
            retry.jitter,
            Duration::from_millis(retry.max_retry_after_ms),
        )
    }

    /// The waits between restarts of a stage: 1 s doubling to 30 s.
    #[must_use]
    pub fn supervisor() -> Self {
        Self::build(Duration::from_secs(1), Duration::from_secs(30), 2.0, 0.0, Duration::ZERO)
    }

    fn build(
        initial: Duration,
        longest: Duration,
        multiplier: f64,
        jitter: f64,
        retry_after: Duration,
    ) -> Self {
        let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.0 };
        let multiplier = if multiplier.is_finite() { multiplier.max(1.0) } else { 1.0 };
        // The policy scatters around its own limit. Kept lower by that much, no wait has to be cut to `longest`,
        // where the waits of many mirrors would meet again.
        let limit = longest.div_f64(1.0 + jitter);
        let initial = initial.min(limit);
        let mut policy = ExponentialBackoff {
            initial_interval: initial,
            current_interval: initial,
            multiplier,
            randomization_factor: jitter,
            max_interval: limit,
            // It never gives up: the rows are safe where they are.
            max_elapsed_time: None,
            ..ExponentialBackoff::default()
        };
        policy.reset();
        Self { policy, longest, longest_retry_after: retry_after, tries: 0 }
    }

    /// Counts a failed attempt and says how long to wait before the next.
    ///
    /// A `Retry-After` is obeyed up to the configured limit, but never to knock earlier than planned: a server
    /// that says 0 while it fails would be asked without pause.
    pub fn next(&mut self, retry_after: Option<Duration>) -> Duration {
        self.tries = self.tries.saturating_add(1);
        let planned = self.policy.next_backoff().unwrap_or(self.longest).min(self.longest);
        match retry_after {
            Some(asked) => asked.min(self.longest_retry_after).max(planned),
            None => planned,
        }
    }

    /// An attempt has succeeded: the next failure is a first one again.
    pub fn reset(&mut self) {
        self.policy.reset();
        self.tries = 0;
    }

    /// Failed attempts since the last success.
    #[must_use]
    pub fn tries(&self) -> u32 {
        self.tries
    }
}

/// How long a stage must run for its next failure to count as a first one.
const HEALTHY_AFTER: Duration = Duration::from_mins(1);

/// When a stage that failed is started again.
#[derive(Debug)]
pub struct Supervision {
    backoff: Backoff,
}

impl Default for Supervision {
    fn default() -> Self {
        Self { backoff: Backoff::supervisor() }
    }
}

impl Supervision {
    /// The stage has failed after running for `ran_for`. Says how long to wait before it is started again.
    pub fn failed(&mut self, ran_for: Duration) -> Duration {
        if ran_for >= HEALTHY_AFTER {
            self.backoff.reset();
        }
        self.backoff.next(None)
    }

    /// Failures in a row, to be named with the recovery.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.backoff.tries()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: FaultKind) -> Verdict {
        verdict(&Fault::new(kind, ""))
    }

    #[test]
    fn every_status_has_its_row() {
        use Verdict::{DeadLetter, Park, ReadBack, RefreshToken, Retry};
        let rows = [
            (100..=299, ReadBack),
            (300..=399, RefreshToken),
            (400..=400, DeadLetter),
            (401..=401, RefreshToken),
            (402..=402, DeadLetter),
            (403..=403, RefreshToken),
            (404..=405, Park),
            (406..=406, DeadLetter),
            (407..=407, RefreshToken),
            (408..=408, Retry),
            (409..=409, DeadLetter),
            (410..=410, Park),
            (411..=424, DeadLetter),
            (425..=425, Retry),
            (426..=428, DeadLetter),
            (429..=429, Retry),
            (430..=499, DeadLetter),
            (500..=500, ReadBack),
            (501..=501, Park),
            (502..=510, ReadBack),
            (511..=511, RefreshToken),
            (512..=599, ReadBack),
        ];
        let listed: Vec<u16> = rows.iter().flat_map(|(codes, _)| codes.clone()).collect();
        assert_eq!(listed, (100..=599).collect::<Vec<_>>());
        for (codes, right) in rows {
            for code in codes {
                assert_eq!(of(FaultKind::Status(code)), right, "{code}");
            }
        }
    }

    #[test]
    fn doubt_is_read_back_and_what_was_not_sent_is_retried() {
        assert_eq!(of(FaultKind::Connect), Verdict::Retry);
        assert_eq!(of(FaultKind::Timeout { sent: false }), Verdict::Retry);
        assert_eq!(of(FaultKind::Timeout { sent: true }), Verdict::ReadBack);
        assert_eq!(of(FaultKind::Broken), Verdict::ReadBack);
        assert_eq!(of(FaultKind::BadAnswer), Verdict::ReadBack);
        assert_eq!(of(FaultKind::Token), Verdict::RefreshToken);
        assert_eq!(of(FaultKind::Status(0)), Verdict::ReadBack);
        assert_eq!(of(FaultKind::Status(999)), Verdict::ReadBack);
    }

    fn seconds(waits: impl Iterator<Item = Duration>) -> Vec<u64> {
        waits.map(|wait| wait.as_secs()).collect()
    }

    #[test]
    fn a_stage_is_restarted_after_1_s_doubling_to_30_s() {
        let mut supervision = Supervision::default();
        let waits = seconds((0..7).map(|_| supervision.failed(Duration::from_secs(59))));
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(supervision.failures(), 7);
        assert_eq!(supervision.failed(HEALTHY_AFTER), Duration::from_secs(1));
        assert_eq!(supervision.failures(), 1);
    }

    #[test]
    fn waits_grow_within_their_scatter_and_never_pass_the_limit() {
        let retry = config::Retry::default();
        let longest = Duration::from_millis(retry.max_ms);
        for _ in 0..50 {
            let mut backoff = Backoff::new(&retry);
            let first = backoff.next(None).as_millis();
            assert!((70..=130).contains(&first), "{first}");
            for _ in 0..100 {
                assert!(backoff.next(None) <= longest);
            }
            assert!(backoff.next(None) >= longest.div_f64(1.3 * 1.3 + 0.2), "it settles near the limit");
            assert_eq!(backoff.tries(), 102);
            backoff.reset();
            assert_eq!(backoff.tries(), 0);
            assert!(backoff.next(None).as_millis() <= 130);
        }
    }

    #[test]
    fn retry_after_is_obeyed_up_to_its_limit_and_never_shortens_a_wait() {
        let mut backoff = Backoff::new(&config::Retry { jitter: 0.0, ..config::Retry::default() });
        assert_eq!(backoff.next(Some(Duration::from_secs(5))), Duration::from_secs(5));
        assert_eq!(backoff.next(Some(Duration::MAX)), Duration::from_mins(1));
        assert_eq!(backoff.next(Some(Duration::ZERO)), Duration::from_millis(400));
    }

    #[test]
    fn extreme_settings_do_not_panic() {
        for (multiplier, jitter) in [(0.0, 2.0), (f64::NAN, f64::NAN), (10.0, 1.0), (1.0, 0.0)] {
            let retry = config::Retry {
                initial_ms: u64::MAX,
                max_ms: 3_600_000,
                multiplier,
                jitter,
                max_retry_after_ms: 0,
            };
            let mut backoff = Backoff::new(&retry);
            for _ in 0..200 {
                assert!(backoff.next(Some(Duration::MAX)) <= Duration::from_hours(1));
            }
        }
    }
}
