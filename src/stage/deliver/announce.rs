//! Telling the server which Hermes session a conversation mirrors.

use std::time::Duration;

use crate::config;
use crate::ids::{ConversationId, HermesSessionId};
use crate::omnigent::Client;
use crate::retry::{Backoff, Verdict, verdict};

/// The server needs the session's id to fork or resume; the mirror does not, so nothing waits for this.
/// A refusal is final (a conversation keeps its first id, and an unknown one has none), anything else is tried
/// again ever more rarely.
pub async fn announce_session(
    client: Client,
    conversation: ConversationId,
    session: HermesSessionId,
    retry: config::Retry,
) {
    let mut backoff = Backoff::new(&retry);
    loop {
        let Err(fault) = client.bind(&conversation, &session).await else { return };
        if matches!(verdict(&fault), Verdict::DeadLetter | Verdict::Park) {
            tracing::info!(%conversation, "the server does not take the session's id: {fault}");
            return;
        }
        tracing::debug!(%conversation, "{fault}");
        tokio::time::sleep(backoff.next(fault.retry_after).max(Duration::from_secs(1))).await;
    }
}
