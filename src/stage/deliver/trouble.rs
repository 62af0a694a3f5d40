//! Why a lane stands still: logged once when it begins, once when it ends, and waited out in between.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::config;
use crate::ids::ConversationId;
use crate::omnigent::{Client, Fault};
use crate::retry::{Backoff, Verdict, verdict};
use crate::stage::degraded::Degraded;
use crate::state::StateError;
use crate::stats::MirrorStats;

/// A wall clock that is this far ahead of the steady one was asleep meanwhile (or was set).
const JUMP: Duration = Duration::from_secs(5);
/// Longest sleep after which the clocks are compared.
const SLICE: Duration = Duration::from_secs(5);
/// For how long an unknown conversation is asked for at the usual pace.
const PATIENCE: Duration = Duration::from_mins(10);
/// How often it is asked for after that.
const PARKED: Duration = Duration::from_mins(5);

/// Why a lane stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The server is away, or does not answer as it should.
    Unreachable,
    /// The server does not let us in.
    LoggedOut,
    /// The server does not know the conversation.
    NoConversation,
}

impl From<Reason> for Degraded {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Unreachable => Self::ServerAway,
            Reason::LoggedOut => Self::LoggedOut,
            Reason::NoConversation => Self::NoConversation,
        }
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slept {
    /// Its time was over.
    Out,
    /// The machine slept meanwhile: whatever was waited for may be there now.
    Jumped,
}

/// A lane's trouble.
#[derive(Debug)]
pub struct Trouble {
    conversation: ConversationId,
    backoff: Backoff,
    reason: Option<Reason>,
    since: Instant,
    renewed: bool,
    state_fails: bool,
    clocks: Clocks,
    stats: Arc<MirrorStats>,
}

#[derive(Clone, Copy, Debug)]
struct Clocks {
    steady: Instant,
    wall: SystemTime,
}

impl Clocks {
    fn now() -> Self {
        Self { steady: Instant::now(), wall: SystemTime::now() }
    }

    /// Whether the wall clock went ahead of the steady one, which stands still while the machine sleeps.
    fn jumped_until(self, now: Self) -> bool {
        let steady = now.steady.duration_since(self.steady);
        now.wall.duration_since(self.wall).is_ok_and(|wall| wall > steady + JUMP)
    }
}

impl Trouble {
    /// No trouble yet.
    #[must_use]
    pub fn new(conversation: ConversationId, retry: &config::Retry, stats: Arc<MirrorStats>) -> Self {
        Self {
            conversation,
            backoff: Backoff::new(retry),
            reason: None,
            since: Instant::now(),
            renewed: false,
            state_fails: false,
            clocks: Clocks::now(),
            stats,
        }
    }

    /// Whether the machine slept since this was last asked.
    pub fn clock_jumped(&mut self) -> bool {
        let now = Clocks::now();
        std::mem::replace(&mut self.clocks, now).jumped_until(now)
    }

    /// Notes that another token was had. Whether it is the first since the server let us in: that one is tried at
    /// once. A source that gives another one each time is no reason to knock without pause.
    pub fn is_first_renewal(&mut self) -> bool {
        !std::mem::replace(&mut self.renewed, true)
    }

    /// After a failure that another attempt may mend: reads the token again, or waits.
    pub async fn bear(&mut self, client: &Client, fault: &Fault) {
        let reason = match verdict(fault) {
            Verdict::RefreshToken => {
                let renewed = matches!(client.refresh_token().await, Ok(true));
                if renewed && self.is_first_renewal() {
                    return;
                }
                Reason::LoggedOut
            }
            Verdict::Park => Reason::NoConversation,
            Verdict::Retry | Verdict::ReadBack | Verdict::DeadLetter => Reason::Unreachable,
        };
        if self.wait(reason, fault).await == Slept::Jumped {
            client.renew();
        }
    }

    /// Notes a failed attempt and waits before the next.
    pub async fn wait(&mut self, reason: Reason, fault: &Fault) -> Slept {
        self.begins(reason, fault);
        let mut left = self.backoff.next(fault.retry_after);
        if reason == Reason::NoConversation && self.since.elapsed() >= PATIENCE {
            left = PARKED;
            self.stats.hold(Some(Degraded::Parked));
        }
        let from = Clocks::now();
        while !left.is_zero() {
            let slice = left.min(SLICE);
            tokio::time::sleep(slice).await;
            left -= slice;
            if from.jumped_until(Clocks::now()) {
                self.clocks = Clocks::now();
                self.backoff.reset();
                return Slept::Jumped;
            }
        }
        Slept::Out
    }

    fn begins(&mut self, reason: Reason, fault: &Fault) {
        let conversation = &self.conversation;
        self.stats.failed_attempts.one_more();
        if self.reason.replace(reason) == Some(reason) {
            tracing::debug!(%conversation, tries = self.backoff.tries(), "{fault}");
            return;
        }
        self.since = Instant::now();
        self.stats.hold(Some(reason.into()));
        match reason {
            Reason::Unreachable => tracing::warn!(%conversation, "{fault}; trying again, nothing is lost"),
            Reason::LoggedOut => {
                tracing::error!(%conversation, "{fault}; log in to the server, delivery then goes on by itself");
            }
            Reason::NoConversation => {
                tracing::error!(%conversation, "{fault}; is the address right, and does the conversation still exist? trying again");
            }
        }
    }

    /// The server has answered as it should.
    pub fn is_over(&mut self) {
        if self.reason.take().is_some() {
            self.stats.hold(None);
            let failed_attempts = self.backoff.tries();
            tracing::info!(conversation = %self.conversation, failed_attempts, "delivering again");
        }
        self.renewed = false;
        self.backoff.reset();
    }

    /// Notes whether the mirror's own state can be written.
    pub fn note_state(&mut self, error: Option<&StateError>) {
        let conversation = &self.conversation;
        match error {
            None => {
                if std::mem::take(&mut self.state_fails) {
                    self.stats.leave_unwritten(false);
                    tracing::info!(%conversation, "the state is being written again");
                }
            }
            Some(error) => {
                if !std::mem::replace(&mut self.state_fails, true) {
                    self.stats.leave_unwritten(true);
                    tracing::error!(%conversation, "{error}; delivery goes on for a few items, then waits");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_wall_clock_that_ran_ahead_was_asleep() {
        let then = Clocks::now();
        let at = |steady: u64, wall: u64| Clocks {
            steady: then.steady + Duration::from_secs(steady),
            wall: then.wall + Duration::from_secs(wall),
        };
        assert!(!then.jumped_until(at(100, 100)));
        assert!(!then.jumped_until(at(100, 104)));
        assert!(then.jumped_until(at(1, 61)));
        let set_back = Clocks { steady: then.steady, wall: then.wall - Duration::from_mins(1) };
        assert!(!then.jumped_until(set_back));
    }
}
