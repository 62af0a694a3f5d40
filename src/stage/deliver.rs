//! Stage 5, ordered HTTP sink: one request in flight a conversation, in order, until it is acknowledged.
//!
//! What becomes of a failure is decided by the table in [`crate::retry`]. Items and idle edges are sent until
//! the server has them or refuses them for good; `running` edges and usage are sent once, since the next one
//! says the same and no item may wait for them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::config;
use crate::event::{Delivery, Item, Mark, Outcome, Post};
use crate::ids::{ConversationId, HermesSessionId, ItemId};
use crate::omnigent::{Client, Fault, FaultKind, body};
use crate::retry::{Backoff, Verdict, verdict};
use crate::state::StateError;
use crate::state::bridge::Bridge;

/// A bridge directory, shared between a lane and the heartbeat.
pub type SharedBridge = Arc<Mutex<Bridge>>;

/// Milliseconds since the epoch.
#[must_use]
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The stage, for one conversation.
#[derive(Debug)]
pub struct Deliver {
    conversation: ConversationId,
    agent: String,
    client: Client,
    bridge: SharedBridge,
    backoff: Backoff,
    trouble: Option<Trouble>,
    state_fails: bool,
}

/// Why the lane stands still, as it was logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Unreachable,
    LoggedOut,
    NoConversation,
}

impl Deliver {
    /// Delivers to `conversation` in the name of `agent`, and moves the cursor in `bridge`.
    #[must_use]
    pub fn new(
        conversation: ConversationId,
        agent: String,
        client: Client,
        bridge: SharedBridge,
        retry: &config::Retry,
    ) -> Self {
        let backoff = Backoff::new(retry);
        Self { conversation, agent, client, bridge, backoff, trouble: None, state_fails: false }
    }

    /// Sends a delivery and, once it is acknowledged or refused for good, moves the cursor.
    pub async fn deliver(&mut self, delivery: Delivery) {
        if let Some(post) = &delivery.post {
            let outcome = self.send(post).await;
            if let Outcome::Refused(reason) = &outcome {
                tracing::error!(conversation = %self.conversation, what = name(post), "not delivered: {reason}");
            }
        }
        if let Some(mark) = &delivery.mark {
            self.advance(mark);
        }
    }

    async fn send(&mut self, post: &Post) -> Outcome {
        match post {
            Post::Running { .. } | Post::Usage(_) => self.send_once(post).await,
            Post::Item { .. } | Post::Idle { .. } => self.send_until_settled(post).await,
        }
    }

    async fn send_once(&mut self, post: &Post) -> Outcome {
        if let Err(fault) = self.attempt(post, None).await {
            tracing::debug!(conversation = %self.conversation, what = name(post), "left out: {fault}");
        }
        Outcome::Delivered(None)
    }

    async fn send_until_settled(&mut self, post: &Post) -> Outcome {
        let mut refreshed = false;
        loop {
            let fault = match self.attempt_with_boundary(post).await {
                Ok(item) => {
                    self.recovered();
                    return Outcome::Delivered(item);
                }
                Err(fault) => fault,
            };
            match verdict(&fault) {
                Verdict::DeadLetter => {
                    self.recovered();
                    return Outcome::Refused(fault.to_string());
                }
                Verdict::RefreshToken if !refreshed => {
                    refreshed = true;
                    if matches!(self.client.refresh_token().await, Ok(true)) {
                        continue;
                    }
                    self.stuck(Trouble::LoggedOut, &fault);
                }
                Verdict::RefreshToken => {
                    refreshed = false;
                    self.stuck(Trouble::LoggedOut, &fault);
                }
                Verdict::Park => self.stuck(Trouble::NoConversation, &fault),
                Verdict::Retry | Verdict::ReadBack => self.stuck(Trouble::Unreachable, &fault),
            }
            tokio::time::sleep(self.backoff.next(fault.retry_after)).await;
        }
    }

    /// One attempt; a compaction's boundary first asks the server which item it comes behind.
    async fn attempt_with_boundary(&mut self, post: &Post) -> Result<Option<ItemId>, Fault> {
        let last_item = match post {
            Post::Item { item: Item::Compaction(_), .. } => self.client.last_item(&self.conversation).await?,
            _ => None,
        };
        self.attempt(post, last_item.as_ref()).await
    }

    async fn attempt(&mut self, post: &Post, last_item: Option<&ItemId>) -> Result<Option<ItemId>, Fault> {
        let Some(body) = body::event(post, &self.agent, last_item) else { return Ok(None) };
        Ok(self.client.post_event(&self.conversation, body).await?.item_id)
    }

    /// Notes why the lane stands still: once when it begins, then only if the reason changes.
    fn stuck(&mut self, trouble: Trouble, fault: &Fault) {
        if self.trouble.replace(trouble) == Some(trouble) {
            tracing::debug!(conversation = %self.conversation, tries = self.backoff.tries(), "{fault}");
            return;
        }
        let conversation = &self.conversation;
        match trouble {
            Trouble::Unreachable => tracing::warn!(%conversation, "{fault}; trying again, nothing is lost"),
            Trouble::LoggedOut => {
                tracing::error!(%conversation, "{fault}; log in to the server, delivery then goes on by itself");
            }
            Trouble::NoConversation => {
                tracing::error!(%conversation, "{fault}; does the conversation still exist? trying again");
            }
        }
    }

    fn recovered(&mut self) {
        if self.trouble.take().is_some() {
            tracing::info!(
                conversation = %self.conversation, failed_attempts = self.backoff.tries(), "delivering again"
            );
        }
        self.backoff.reset();
    }

    fn advance(&mut self, mark: &Mark) {
        let written = self.with_bridge(|bridge| bridge.advance(mark, now_ms()));
        self.note_state(written);
    }

    /// The mirror was bound, or follows its session into a new one.
    pub fn note_session(&mut self, change: impl FnOnce(&mut Bridge) -> Result<(), StateError>) {
        let written = self.with_bridge(change);
        self.note_state(written);
    }

    fn with_bridge<T>(&self, act: impl FnOnce(&mut Bridge) -> T) -> T {
        act(&mut self.bridge.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note_state(&mut self, written: Result<(), StateError>) {
        match written {
            Ok(()) => {
                if std::mem::take(&mut self.state_fails) {
                    tracing::info!(conversation = %self.conversation, "the cursor is being written again");
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.state_fails, true) {
                    let conversation = &self.conversation;
                    tracing::error!(%conversation, "{error}; a restart now would repeat messages");
                }
            }
        }
    }
}

/// Tells the server which Hermes session a conversation mirrors. A failure holds nothing up: a refusal is
/// final, anything else is tried again ever more rarely.
pub async fn announce_session(
    client: Client,
    conversation: ConversationId,
    session: HermesSessionId,
    retry: config::Retry,
) {
    let mut backoff = Backoff::new(&retry);
    loop {
        let Err(fault) = client.bind(&conversation, &session).await else { return };
        if matches!(fault.kind, FaultKind::Status(400..=499)) {
            tracing::info!(%conversation, "the server does not take the session's id: {fault}");
            return;
        }
        tracing::debug!(%conversation, "{fault}");
        tokio::time::sleep(backoff.next(fault.retry_after).max(Duration::from_secs(1))).await;
    }
}

fn name(post: &Post) -> &'static str {
    match post {
        Post::Item { item, .. } => item.name(),
        Post::Running { .. } => "running edge",
        Post::Idle { .. } => "idle edge",
        Post::Usage(_) => "usage",
    }
}
