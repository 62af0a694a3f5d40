//! What to do while it is not known whether something of ours is at the server: look before sending.
//!
//! At every start, and after every failure that may have come behind the server's commit, the conversation's
//! tail is read back until the newest item that the ledger holds. What lies behind it and is ours was
//! delivered without our knowing; each such item settles one delivery, and only one.

use super::Deliver;
use crate::event::Item;
use crate::ids::{ItemId, MessageId, ResponseId};
use crate::omnigent::read_back::{is_same, opener, user_words};
use crate::omnigent::{Fault, FaultKind, Order, StoredItem};
use crate::state::StateError;
use crate::state::ledger::Standing;

/// Items a page; a tail is short unless the ledger was lost.
const FIRST_PAGE: u16 = 20;
const PAGE: u16 = 200;

/// What is known of the conversation's tail.
#[derive(Debug)]
pub enum Doubt {
    /// Nothing is in doubt.
    None,
    /// The tail is to be read before the next item is sent.
    Open,
    /// Items of ours that no delivery has accounted for yet, oldest first.
    Unclaimed(Vec<StoredItem>),
}

impl Doubt {
    /// Whether the next items are probably at the server already.
    pub fn expects_stored_items(&self) -> bool {
        matches!(self, Self::Unclaimed(items) if !items.is_empty())
    }
}

/// What a conversation says of a mirror that has no record of it: the last turn it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovery {
    /// The row that opened the turn.
    pub opener: MessageId,
    /// The words of the turn's user message, to know the row again by.
    pub words: Option<String>,
    items: Vec<StoredItem>,
}

impl Deliver {
    /// Whether the item is there already, and under which id.
    pub(super) async fn find(&mut self, item: &Item, turn: &ResponseId) -> Result<Option<ItemId>, Fault> {
        if matches!(self.doubt, Doubt::Open) {
            self.stats.read_backs.one_more();
            self.doubt = Doubt::Unclaimed(self.unrecorded_tail(turn).await?);
        }
        let Doubt::Unclaimed(items) = &mut self.doubt else { return Ok(None) };
        let Some(at) = items.iter().position(|stored| is_same(item, turn, stored)) else {
            // In order, what follows can't be there either.
            self.doubt = Doubt::None;
            return Ok(None);
        };
        let found = items.remove(at).id;
        if items.is_empty() {
            self.doubt = Doubt::None;
        }
        self.stats.found.one_more();
        tracing::info!(conversation = %self.conversation, item = %found, "found by read-back, not sent again");
        Ok(Some(found))
    }

    /// The conversation's items, oldest first, behind the newest one on record. Where none is on record, the newest
    /// one of the turn: the cursor of a bridge directory is at most one post behind, and what lies further back may
    /// equal an item that is still to come.
    async fn unrecorded_tail(&mut self, turn: &ResponseId) -> Result<Vec<StoredItem>, Fault> {
        let anchored = self.with_keeper(|keeper| keeper.has_items()).map_err(|error| no_record(&error))?;
        let of_an_older_turn = |item: &StoredItem| {
            !anchored && opener(item).is_some() && item.response_id.as_ref() != Some(turn)
        };
        let mut tail = self.tail(of_an_older_turn).await?;
        if !anchored {
            tail.drain(..tail.len().saturating_sub(1));
        }
        Ok(tail)
    }

    /// Reads back from the newest item to the first that is on record or `ends` the tail, leaving out what no
    /// mirror posts; oldest first.
    async fn tail(&mut self, mut ends: impl FnMut(&StoredItem) -> bool) -> Result<Vec<StoredItem>, Fault> {
        let mut tail = Vec::new();
        let mut after: Option<ItemId> = None;
        loop {
            let limit = if after.is_none() { FIRST_PAGE } else { PAGE };
            let read = self.client.items(&self.conversation, after.as_ref(), Order::Descending, limit).await;
            let page = read.map_err(|fault| cut_short(fault, after.as_ref()))?;
            let next = page.next().cloned();
            for item in page.items {
                match self
                    .with_keeper(|keeper| keeper.standing(&item.id))
                    .map_err(|error| no_record(&error))?
                {
                    // A replayed dead letter: an item before it may be unrecorded still.
                    Some(Standing::Late) => continue,
                    None if !ends(&item) => {}
                    None | Some(Standing::InOrder) => {
                        tail.reverse();
                        return Ok(tail);
                    }
                }
                if opener(&item).is_some() || item.kind == "compaction" {
                    tail.push(item);
                }
            }
            if next.is_none() {
                tail.reverse();
                return Ok(tail);
            }
            after = next;
        }
    }

    /// Looks for the last turn that a mirror delivered to the conversation. `None` where the ledger knows it
    /// better, or the conversation holds none.
    /// Asks until the server answers.
    pub async fn recover(&mut self) -> Option<Recovery> {
        if !self.with_keeper(|keeper| keeper.may_search()).unwrap_or(false) {
            return None;
        }
        loop {
            match self.last_turn().await {
                Ok(recovery) => {
                    self.trouble.is_over();
                    return recovery;
                }
                Err(fault) => self.trouble.bear(&self.client, &fault).await,
            }
        }
    }

    async fn last_turn(&mut self) -> Result<Option<Recovery>, Fault> {
        let mut last: Option<MessageId> = None;
        let items = self
            .tail(|item| match (opener(item), last) {
                (Some(row), Some(last)) => row != last,
                (Some(row), None) => {
                    last = Some(row);
                    false
                }
                (None, _) => false,
            })
            .await?;
        Ok(last.map(|opener| {
            let turn = ResponseId::for_turn(opener);
            let of_turn = |item: &&StoredItem| item.response_id.as_ref() == Some(&turn);
            let words = items.iter().filter(of_turn).find_map(user_words);
            Recovery { opener, words, items }
        }))
    }

    /// Delivery goes on with the turn that was recovered: its items settle those that come.
    pub fn resume_from(&mut self, recovery: Recovery) {
        self.doubt = Doubt::Unclaimed(recovery.items);
    }
}

/// Without the ledger nothing can be told of what is at the server, so nothing is sent until it can be read.
fn no_record(error: &StateError) -> Fault {
    Fault { kind: FaultKind::BadAnswer, retry_after: None, detail: error.to_string() }
}

/// A page behind an item that has gone meanwhile is answered like an unknown conversation: no word on that.
fn cut_short(fault: Fault, after: Option<&ItemId>) -> Fault {
    match fault.kind {
        FaultKind::Status(404) if after.is_some() => Fault { kind: FaultKind::BadAnswer, ..fault },
        _ => fault,
    }
}
