//! Dead letters sent again: looked for first, then posted, in the order of their rows.
//!
//! It writes to a conversation as a mirror does, so it takes the same lock: beside a running mirror nothing is
//! sent. What it delivers stands at the conversation's end.

use std::path::PathBuf;

use bytes::Bytes;

use crate::config;
use crate::event::Item;
use crate::ids::{ConversationId, ItemId, MessageId};
use crate::omnigent::auth::Environment;
use crate::omnigent::read_back::{digest, is_same};
use crate::omnigent::{Address, Client, ClientError, Fault, Order, StoredItem, posted};
use crate::retry::{Verdict, verdict};
use crate::state::ledger::{DeadLetter, DeadLetters};
use crate::state::{StateError, dir, lock};

/// Items a page.
const PAGE: u16 = 200;

/// What became of a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// It was in the conversation already. The letter is removed.
    Found(ItemId),
    /// The server took it, and named the item it made, if it names such. The letter is removed.
    Delivered(Option<ItemId>),
    /// The server will not take it, for this reason. The letter stays.
    Refused(String),
    /// It could not be sent, or its answer was lost, for this reason. The letter stays.
    Failed(String),
    /// It was not sent at all, for this reason. The letter stays.
    NotTried(String),
}

/// Why nothing can be sent again.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The client for the server can't be built.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The mirror's own files can't be read or written.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Sends dead letters again, to the one server that is configured.
#[derive(Debug)]
pub struct Replay {
    client: Client,
    /// Where the conversations' locks are, common to all of a person's processes.
    locks: PathBuf,
}

impl Replay {
    /// Sets a replay up; nothing is sent yet. `environment` looks up variables.
    pub fn new(deliver: &config::Deliver, environment: Environment) -> Result<Self, ReplayError> {
        let client = Client::new(deliver, environment)?;
        Ok(Self { client, locks: dir::root(&config::State::default())? })
    }

    /// Sends the letters again and reports each one once its fate is written down. An error ends it; what was
    /// not reported by then is found by the next replay.
    pub async fn run(
        &self,
        letters: &DeadLetters,
        mut chosen: Vec<DeadLetter>,
        mut report: impl FnMut(&DeadLetter, &Replayed),
    ) -> Result<(), StateError> {
        chosen.sort_by(|a, b| order(a).cmp(&order(b)));
        for of_one in chosen.chunk_by(|a, b| (&a.server, &a.conversation) == (&b.server, &b.conversation)) {
            self.conversation(letters, of_one, &mut report).await?;
        }
        Ok(())
    }

    /// Sends one conversation's letters.
    async fn conversation(
        &self,
        letters: &DeadLetters,
        of_one: &[DeadLetter],
        report: &mut impl FnMut(&DeadLetter, &Replayed),
    ) -> Result<(), StateError> {
        let Some(DeadLetter { server, conversation, .. }) = of_one.first() else { return Ok(()) };
        let conversation = ConversationId::new(conversation.as_str());
        if !self.is_ours(server) {
            let reason =
                format!("it is for {server}, and the server configured is {}", self.client.address());
            not_tried(of_one, &reason, report);
            return Ok(());
        }
        let _writer = match lock::conversation(&self.locks, server, &conversation) {
            Ok(held) => held,
            Err(held @ StateError::Held { .. }) => {
                not_tried(of_one, &held.to_string(), report);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut there = match self.of_their_turns(of_one, &conversation).await {
            Ok(there) => unrecorded(there, letters, server, &conversation)?,
            Err(fault) => {
                not_tried(of_one, &fault.to_string(), report);
                return Ok(());
            }
        };
        for (at, letter) in of_one.iter().enumerate() {
            let became = self.one(letters, letter, &conversation, &mut there).await?;
            report(letter, &became);
            if matches!(became, Replayed::Failed(_)) {
                // In order: what comes behind it waits for it.
                let rest = of_one.get(at + 1..).unwrap_or_default();
                not_tried(rest, &format!("number {} comes before it", letter.id), report);
                break;
            }
        }
        Ok(())
    }

    /// Looks for one letter among what is there, else posts it.
    async fn one(
        &self,
        letters: &DeadLetters,
        letter: &DeadLetter,
        conversation: &ConversationId,
        there: &mut Vec<StoredItem>,
    ) -> Result<Replayed, StateError> {
        // It was read before the lock was taken.
        if letters.get(letter.id)?.is_none() {
            return Ok(Replayed::NotTried("it is no longer on the list".to_owned()));
        }
        let Some(item) = posted::item(&letter.body) else {
            return Ok(Replayed::NotTried("it has no body that could be sent; purge it".to_owned()));
        };
        if let Some(found) = take(there, &item, letter) {
            letters.settle(letter.id, digest(&item), Some(&found))?;
            return Ok(Replayed::Found(found));
        }
        let fault = match self.client.post_event(conversation, Bytes::from(letter.body.clone())).await {
            Ok(accepted) => {
                letters.settle(letter.id, digest(&item), accepted.item_id.as_ref())?;
                return Ok(Replayed::Delivered(accepted.item_id));
            }
            Err(fault) => fault,
        };
        match verdict(&fault) {
            Verdict::DeadLetter => return Ok(Replayed::Refused(fault.to_string())),
            Verdict::ReadBack => letters.doubt(letter.id)?,
            Verdict::Retry | Verdict::RefreshToken | Verdict::Park => {}
        }
        Ok(Replayed::Failed(fault.to_string()))
    }

    /// The stored items of the letters' turns, and every compaction, which has no turn; oldest first.
    ///
    /// All of the conversation is read: an earlier replay may have put items of an old turn behind newer ones.
    async fn of_their_turns(
        &self,
        of_one: &[DeadLetter],
        conversation: &ConversationId,
    ) -> Result<Vec<StoredItem>, Fault> {
        let is_theirs = |item: &StoredItem| {
            let in_turn = of_one.iter().any(|letter| item.response_id.as_ref() == Some(&letter.turn));
            in_turn || item.kind == "compaction"
        };
        let mut found = Vec::new();
        let mut after: Option<ItemId> = None;
        loop {
            let page = self.client.items(conversation, after.as_ref(), Order::Ascending, PAGE).await?;
            after = page.next().cloned();
            found.extend(page.items.into_iter().filter(is_theirs));
            if after.is_none() {
                return Ok(found);
            }
        }
    }

    /// Whether a letter's server is the one that is configured. The token is for no other.
    fn is_ours(&self, server: &str) -> bool {
        let theirs = Address::parse(server);
        theirs.is_ok_and(|theirs| theirs.to_string() == self.client.address().to_string())
    }
}

/// Those that no delivery accounts for.
fn unrecorded(
    there: Vec<StoredItem>,
    letters: &DeadLetters,
    server: &str,
    conversation: &ConversationId,
) -> Result<Vec<StoredItem>, StateError> {
    let mut left = Vec::with_capacity(there.len());
    for item in there {
        if !letters.accounts_for(server, conversation, &item.id)? {
            left.push(item);
        }
    }
    Ok(left)
}

fn order(letter: &DeadLetter) -> (&str, &str, MessageId, u32) {
    (&letter.server, &letter.conversation, letter.row, letter.place)
}

fn not_tried(letters: &[DeadLetter], reason: &str, report: &mut impl FnMut(&DeadLetter, &Replayed)) {
    for letter in letters {
        report(letter, &Replayed::NotTried(reason.to_owned()));
    }
}

/// Takes the item that is the letter's out of what is there, so that it settles no second one.
fn take(there: &mut Vec<StoredItem>, item: &Item, letter: &DeadLetter) -> Option<ItemId> {
    let at = there.iter().position(|stored| is_same(item, &letter.turn, stored))?;
    Some(there.remove(at).id)
}
