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
use crate::state::ledger::{EdgeStatus, Record};

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
        let edge = Edge { turn: turn.clone(), failed };
        let post = edge.post();
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
                    return EdgeStatus::Owed;
                }
                _ => self.bear(&fault).await,
            }
        }
    }

    fn retry_apart(&mut self, edge: Edge) {
        let (client, backoff) = (self.client.clone(), Backoff::new(&self.retry));
        self.edges.tasks.spawn(edge.retry(client, self.conversation.clone(), backoff));
    }

    /// Tries the edges again that an earlier run left owed.
    pub fn retry_owed_edges(&mut self) {
        let owed = self.with_keeper(|keeper| keeper.owed()).unwrap_or_default();
        for turn in owed {
            let failed = self.with_keeper(|keeper| keeper.has_dead_letter(&turn)).unwrap_or(false);
            self.retry_apart(Edge { turn, failed });
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

/// A turn's closing edge.
struct Edge {
    turn: ResponseId,
    failed: bool,
}

impl Edge {
    fn post(&self) -> Post {
        Post::Idle { turn: self.turn.clone(), failed: self.failed }
    }

    async fn retry(
        self,
        client: Client,
        conversation: ConversationId,
        mut backoff: Backoff,
    ) -> (ResponseId, EdgeStatus) {
        let body = body::event(&self.post(), "", None).unwrap_or_default();
        let mut last: Option<Fault> = None;
        while backoff.tries() < TRIES {
            tokio::time::sleep(backoff.next(last.as_ref().and_then(|fault| fault.retry_after))).await;
            match client.post_event(&conversation, body.clone()).await {
                Ok(_) => return (self.turn, closing(self.failed)),
                Err(fault) => last = Some(fault),
            }
        }
        let why = last.map_or_else(String::new, |fault| fault.to_string());
        tracing::error!(
            %conversation, turn = %self.turn, tries = TRIES,
            "the turn's closing edge was given up, its items are delivered: {why}"
        );
        (self.turn, EdgeStatus::GivenUp)
    }
}
