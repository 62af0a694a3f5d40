//! The edge that closes a turn.
//!
//! It goes out behind the last item of its turn. A server that refuses it for the moment (503 while the parent
//! of a sub-agent is away) must not hold up the turns that follow, so such an edge is tried again on its own:
//! a bounded number of times, then it is given up, and said so.

use tokio::task::JoinSet;

use super::{Deliver, closing};
use crate::event::Post;
use crate::ids::{ConversationId, ResponseId};
use crate::omnigent::{Client, Fault, FaultKind, body};
use crate::retry::{Backoff, Verdict, verdict};
use crate::state::ledger::{EdgeStatus, OwedEdge, Record};

/// How often a refused edge is tried on its own; with the default waits, for about two minutes.
const TRIES: u32 = 15;

/// Edges that are being tried on their own.
#[derive(Debug, Default)]
pub struct Edges {
    tasks: JoinSet<(ResponseId, EdgeStatus)>,
}

impl Deliver {
    /// Closes a turn: `failed` if an item of it was refused, else `idle`.
    pub(super) async fn close(&mut self, turn: &ResponseId) -> EdgeStatus {
        self.collect_edges().await;
        let failed = self.with_keeper(|keeper| keeper.has_dead_letter(turn)).unwrap_or(false);
        let edge = OwedEdge { turn: turn.clone(), failed };
        let post = post(&edge);
        loop {
            self.wait_for_claim().await;
            let Err(fault) = self.attempt(&post, None).await else {
                self.trouble.is_over();
                return closing(failed);
            };
            match (verdict(&fault), fault.kind) {
                (Verdict::DeadLetter, _) => {
                    tracing::error!(conversation = %self.conversation, %turn, "the closing edge was refused: {fault}");
                    return EdgeStatus::GivenUp;
                }
                (_, FaultKind::Status(500..=599)) => {
                    self.retry_apart(edge);
                    return EdgeStatus::Owed { failed };
                }
                _ => self.trouble.bear(&self.client, &fault).await,
            }
        }
    }

    fn retry_apart(&mut self, edge: OwedEdge) {
        let (client, backoff) = (self.client.clone(), Backoff::new(&self.retry));
        self.edges.tasks.spawn(retry(edge, client, self.conversation.clone(), backoff));
    }

    /// Tries the edges again that an earlier run left owed.
    pub fn retry_owed_edges(&mut self) {
        let owed = self.with_keeper(|keeper| keeper.owed()).unwrap_or_default();
        for edge in owed {
            self.retry_apart(edge);
        }
    }

    /// Writes down what has become of the edges that were tried on their own.
    pub async fn collect_edges(&mut self) {
        while let Some(done) = self.edges.tasks.try_join_next() {
            if let Ok(edge) = done {
                self.write(Record { edge: Some(edge), ..Record::default() }).await;
            }
        }
    }

    /// Waits for the edges that are being tried on their own; for the end of a lane.
    pub async fn finish_edges(&mut self) {
        while let Some(done) = self.edges.tasks.join_next().await {
            if let Ok(edge) = done {
                self.write(Record { edge: Some(edge), ..Record::default() }).await;
            }
        }
    }
}

fn post(edge: &OwedEdge) -> Post {
    Post::Idle { turn: edge.turn.clone(), failed: edge.failed }
}

async fn retry(
    edge: OwedEdge,
    client: Client,
    conversation: ConversationId,
    mut backoff: Backoff,
) -> (ResponseId, EdgeStatus) {
    let body = body::event(&post(&edge), "", None).unwrap_or_default();
    let mut last: Option<Fault> = None;
    while backoff.tries() < TRIES {
        tokio::time::sleep(backoff.next(last.as_ref().and_then(|fault| fault.retry_after))).await;
        match client.post_event(&conversation, body.clone()).await {
            Ok(_) => return (edge.turn, closing(edge.failed)),
            Err(fault) => last = Some(fault),
        }
    }
    let why = last.map_or_else(String::new, |fault| fault.to_string());
    tracing::error!(
        %conversation, turn = %edge.turn, tries = TRIES,
        "the turn's closing edge was given up, its items are delivered: {why}"
    );
    (edge.turn, EdgeStatus::GivenUp)
}
