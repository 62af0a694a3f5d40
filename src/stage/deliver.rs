//! Stage 5, ordered HTTP sink: one request in flight a conversation, in order, until it is acknowledged.
//!
//! What becomes of a failure is decided by the table in [`crate::retry`]. An item whose fate is in doubt is
//! looked for in the conversation before it is sent again (`doubt`). A `running` edge, usage and notices are
//! sent once: no item may wait for them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::config;
use crate::event::{Delivery, Item, NOTE, Notice, Outcome, Passed, Post};
use crate::hermes::tool_calls::waits_for_the_person;
use crate::ids::{ConversationId, ItemId, MessageId, ResponseId};
use crate::omnigent::read_back::digest;
use crate::omnigent::{Client, Fault, FaultKind, body};
use crate::retry::{Backoff, Verdict, verdict};
use crate::stage::recall::{Recall, Sending};
use crate::state::StateError;
use crate::state::claims::Permit;
use crate::state::keeper::Keeper;
use crate::state::ledger::{DeliveredItem, EdgeStatus, NewDeadLetter, Record};
use crate::stats::MirrorStats;

mod announce;
mod doubt;
mod edge;
mod trouble;

pub use announce::announce_session;
pub use doubt::Recovery;
pub use trouble::Trouble;

use doubt::Doubt;

/// The state of a mirror, shared between its lane and the heartbeat.
pub type SharedKeeper = Arc<Mutex<Keeper>>;

/// Milliseconds since the epoch.
#[must_use]
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The stage, for one conversation.
pub struct Deliver {
    conversation: ConversationId,
    agent: String,
    client: Client,
    keeper: SharedKeeper,
    retry: config::Retry,
    doubt: Doubt,
    trouble: Trouble,
    edges: edge::Edges,
    permit: Box<dyn Fn() -> Permit + Send>,
    recall: Recall,
    stats: Arc<MirrorStats>,
    /// When what is delivered now was read.
    read: Instant,
}

/// What a [`Deliver`] works with.
pub struct Parts {
    /// Where it delivers to.
    pub conversation: ConversationId,
    /// The name on the model's messages.
    pub agent: String,
    /// The server.
    pub client: Client,
    /// The mirror's state.
    pub keeper: SharedKeeper,
    /// Waiting between tries.
    pub retry: config::Retry,
    /// Whether the claim on the session is still ours; asked before each post.
    pub permit: Box<dyn Fn() -> Permit + Send>,
    /// What is taken back of the rows on the lane.
    pub recall: Recall,
    /// What it counts.
    pub stats: Arc<MirrorStats>,
}

impl Deliver {
    /// The stage at its start: whatever was sent last before it is in doubt.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { conversation, agent, client, keeper, retry, permit, recall, stats } = parts;
        let trouble = Trouble::new(conversation.clone(), &retry, Arc::clone(&stats));
        let edges = edge::Edges::default();
        let (doubt, read) = (Doubt::Open, Instant::now());
        Self {
            conversation,
            agent,
            client,
            keeper,
            retry,
            doubt,
            trouble,
            edges,
            permit,
            recall,
            stats,
            read,
        }
    }

    /// What is delivered from now on was read at this time.
    pub fn note_read(&mut self, at: Instant) {
        self.read = at;
    }

    /// Sends a delivery and, once it is acknowledged or refused for good, writes that down.
    pub async fn deliver(&mut self, delivery: Delivery) {
        let mut record = Record { mark: delivery.mark, ..Record::default() };
        if let Some(post) = &delivery.post {
            match post {
                Post::Notice(Notice::Title(title)) => {
                    record.title = self.send_once(post).await.then(|| title.clone());
                }
                Post::Running { .. } | Post::Usage(_) | Post::Notice(_) => {
                    let _ = self.send_once(post).await;
                }
                Post::Idle { turn, .. } => {
                    record.edge = Some((turn.clone(), self.close(turn).await));
                    self.stats.turn_ended(turn);
                }
                Post::Item { item: Item::Reasoning { .. }, .. } => {
                    // Live only, never stored: beside an item that is there already it would flash.
                    if !self.doubt.expects_stored_items() {
                        let _ = self.send_once(post).await;
                    }
                }
                Post::Item { item, turn, row, place } => {
                    if let Some(settled) = self.send_item(post, item, turn, *row).await {
                        self.settle(&mut record, settled, post, (*row, *place));
                    }
                }
            }
        }
        self.leave_out_taken_back(&mut record);
        if record != Record::default() {
            self.write(record).await;
        }
    }

    /// Of a row that was taken back before anything of it was sent only the cursor is written down: should it be live
    /// again, it is new.
    fn leave_out_taken_back(&self, record: &mut Record) {
        let Some(mark) = record.mark.as_mut().filter(|mark| self.recall.is_taken_back(mark.row)) else {
            return;
        };
        mark.passed = Some(Passed::TakenBack);
        if mark.items.is_some() {
            record.mark = None;
        }
    }

    /// Adds what became of an item to its record.
    fn settle(&self, record: &mut Record, settled: Settled, post: &Post, (row, place): (MessageId, u32)) {
        let Post::Item { item, turn, .. } = post else { return };
        let (kind, turn) = (item.name(), turn.clone());
        record.undo = (place == NOTE).then(|| (row, turn.opener().unwrap_or(row)));
        match settled.outcome {
            Outcome::Delivered(id) => {
                if matches!(item, Item::FunctionCall { name, .. } if waits_for_the_person(name)) {
                    self.stats.waits_for_the_person(&turn);
                }
                let digest = digest(item);
                record.item = Some(DeliveredItem { row, place, kind, digest, turn, id });
            }
            Outcome::Refused(reason) => {
                let conversation = &self.conversation;
                tracing::error!(%conversation, %row, kind, "set aside as a dead letter: {reason}");
                self.stats.dead_letters.one_more();
                let body = body::event(post, &self.agent, settled.last_item.as_ref());
                let body = body.map(Vec::from).unwrap_or_default();
                let doubtful = settled.doubtful;
                let at_ms = now_ms();
                record.dead_letter =
                    Some(NewDeadLetter { row, place, kind, turn, body, reason, doubtful, at_ms });
            }
        }
    }

    /// Sends what no item may wait for. Returns whether the server took it.
    async fn send_once(&mut self, post: &Post) -> bool {
        self.wait_for_claim().await;
        let sent = self.attempt(post, None).await;
        if let Err(fault) = &sent {
            tracing::debug!(conversation = %self.conversation, "left out, the next one says the same: {fault}");
        }
        sent.is_ok()
    }

    /// Sends an item until the server has it or will never take it. `None`: its row was taken back before anything of
    /// it was at the server.
    async fn send_item(
        &mut self,
        post: &Post,
        item: &Item,
        turn: &ResponseId,
        row: MessageId,
    ) -> Option<Settled> {
        let (mut doubtful, mut last_item) = (false, None);
        loop {
            self.wait_for_claim().await;
            let sending = self.recall.send(row);
            if sending == Sending::TakenBack {
                tracing::debug!(conversation = %self.conversation, %row, "not sent: it was taken back");
                return None;
            }
            let fault = match self.look_and_send(post, item, turn, &mut last_item).await {
                Ok(id) => {
                    self.trouble.is_over();
                    return Some(Settled { outcome: Outcome::Delivered(id), doubtful, last_item });
                }
                Err(fault) => fault,
            };
            match verdict(&fault) {
                Verdict::DeadLetter => {
                    self.trouble.is_over();
                    return Some(Settled {
                        outcome: Outcome::Refused(fault.to_string()),
                        doubtful,
                        last_item,
                    });
                }
                Verdict::ReadBack => {
                    doubtful = true;
                    self.doubt = Doubt::Open;
                }
                Verdict::RefreshToken | Verdict::Park | Verdict::Retry if sending == Sending::First => {
                    self.recall.unsend(row);
                }
                Verdict::RefreshToken | Verdict::Park | Verdict::Retry => {}
            }
            self.trouble.bear(&self.client, &fault).await;
        }
    }

    /// Settles a doubt, then sends the item unless it is there already. Notes the conversation's last item where
    /// a compaction names it.
    async fn look_and_send(
        &mut self,
        post: &Post,
        item: &Item,
        turn: &ResponseId,
        last_item: &mut Option<ItemId>,
    ) -> Result<Option<ItemId>, Fault> {
        if let Some(found) = self.find(item, turn).await.map_err(no_refusal)? {
            return Ok(Some(found));
        }
        if matches!(item, Item::Compaction(_)) {
            *last_item = self.client.last_item(&self.conversation).await.map_err(no_refusal)?;
        }
        let id = self.attempt(post, last_item.as_ref()).await?;
        self.stats.item_delivered(self.read.elapsed());
        Ok(id)
    }

    async fn attempt(&mut self, post: &Post, last_item: Option<&ItemId>) -> Result<Option<ItemId>, Fault> {
        let Some(body) = body::event(post, &self.agent, last_item) else { return Ok(None) };
        if self.trouble.clock_jumped() {
            // Asleep, no time passed for the connections, but for the server it did.
            self.client.renew();
        }
        Ok(self.client.post_event(&self.conversation, body).await?.item_id)
    }

    async fn wait_for_claim(&mut self) {
        while let Permit::Wait(time) = (self.permit)() {
            tokio::time::sleep(time).await;
        }
    }

    /// Writes a record down. While too much is unwritten, nothing more is delivered.
    async fn write(&mut self, record: Record) {
        let mut written = self.with_keeper(|keeper| keeper.record(record, now_ms()));
        let mut backoff = Backoff::new(&self.retry);
        loop {
            self.trouble.note_state(written.as_ref().err());
            if written.is_ok() || !self.with_keeper(|keeper| keeper.must_wait()) {
                return;
            }
            tokio::time::sleep(backoff.next(None)).await;
            written = self.with_keeper(|keeper| keeper.catch_up(now_ms()));
        }
    }

    /// The mirror was bound, or follows its session into a new one.
    pub fn note_session(&mut self, change: impl FnOnce(&mut Keeper) -> Result<(), StateError>) {
        let written = self.with_keeper(change);
        self.trouble.note_state(written.as_ref().err());
    }

    /// Whether the turn's closing edge was sent.
    #[must_use]
    pub fn is_settled(&self, turn: &ResponseId) -> bool {
        self.with_keeper(|keeper| keeper.is_settled(turn)).unwrap_or(false)
    }

    /// The title that the conversation was last given.
    #[must_use]
    pub fn title(&self) -> Option<String> {
        self.with_keeper(|keeper| keeper.title()).unwrap_or_default()
    }

    fn with_keeper<T>(&self, act: impl FnOnce(&mut Keeper) -> T) -> T {
        act(&mut self.keeper.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What became of an item.
struct Settled {
    outcome: Outcome,
    /// Whether an earlier try may have been stored after all.
    doubtful: bool,
    /// The item that a compaction reaches to.
    last_item: Option<ItemId>,
}

/// A refused read says nothing of the item that was to be sent after it.
fn no_refusal(fault: Fault) -> Fault {
    if verdict(&fault) == Verdict::DeadLetter { Fault { kind: FaultKind::BadAnswer, ..fault } } else { fault }
}

/// How a closing edge is written down.
fn closing(failed: bool) -> EdgeStatus {
    if failed { EdgeStatus::Failed } else { EdgeStatus::Idle }
}
