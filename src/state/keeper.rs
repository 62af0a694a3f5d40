//! What a lane writes down: its account in the ledger, and beside it the bridge files for siblings.

use std::collections::VecDeque;

use super::StateError;
use super::bridge::Bridge;
use super::ledger::{Account, Record, Standing};
use crate::event::Binding;
use crate::ids::{HermesSessionId, ItemId, MessageId, ResponseId};

/// Acknowledgements that may go unwritten before delivery waits. After a kill, read-back has to tell as many
/// items at most from new ones.
pub const UNWRITTEN: usize = 8;

/// The state of one mirror.
#[derive(Debug)]
pub struct Keeper {
    account: Account,
    bridge: Bridge,
    unwritten: VecDeque<Record>,
}

impl Keeper {
    /// Joins an account and a bridge directory. A cursor that another program wrote there (a runner, in
    /// advance; a Python forwarder, meanwhile) goes before the ledger's, and seeds an empty ledger.
    pub fn new(account: Account, bridge: Bridge) -> Result<Self, StateError> {
        let known = account.binding()?;
        if let Some(theirs) = bridge.binding().filter(|_| known.is_none() || !bridge.is_ours()) {
            let behind = known
                .as_ref()
                .is_some_and(|ours| ours.session == theirs.session && ours.resume.last >= theirs.resume.last);
            if !behind {
                account.bind(&theirs)?;
            }
        }
        Ok(Self { account, bridge, unwritten: VecDeque::new() })
    }

    /// Where to go on; `None` where nothing was followed yet.
    pub fn binding(&self) -> Result<Option<Binding>, StateError> {
        self.account.binding()
    }

    /// The session on which the claim lies.
    #[must_use]
    pub fn session(&self) -> Option<&HermesSessionId> {
        self.bridge.session()
    }

    /// When the claim was last renewed, in ms since the epoch.
    #[must_use]
    pub fn heartbeat_ms(&self) -> i64 {
        self.bridge.heartbeat_ms()
    }

    /// A session was bound.
    pub fn bind(&mut self, binding: &Binding, now_ms: i64) -> Result<(), StateError> {
        self.account.bind(binding)?;
        self.bridge.bind(binding, now_ms)
    }

    /// The session goes on in another one.
    pub fn follow(&mut self, child: &HermesSessionId, now_ms: i64) -> Result<(), StateError> {
        self.account.follow(child)?;
        self.bridge.follow(child, now_ms)
    }

    /// An older copy of the database was put in place: what lies behind `row` is no longer what was delivered.
    pub fn rewind(&mut self, row: MessageId, now_ms: i64) -> Result<(), StateError> {
        self.account.rewind(row)?;
        self.bridge.rewind(row, now_ms)
    }

    /// The account, to be asked beside this.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Writes down what was acknowledged. What can't be written is kept, and tried again with the next.
    pub fn record(&mut self, record: Record, now_ms: i64) -> Result<(), StateError> {
        self.unwritten.push_back(record);
        self.catch_up(now_ms)
    }

    /// Tries again to write what could not be written.
    pub fn catch_up(&mut self, now_ms: i64) -> Result<(), StateError> {
        let mut newest = None;
        while let Some(record) = self.unwritten.front() {
            self.account.record(record)?;
            newest = self.unwritten.pop_front().and_then(|record| record.mark).or(newest);
        }
        newest.map_or(Ok(()), |mark| self.bridge.advance(&mark, now_ms))
    }

    /// Whether so much is unwritten that nothing more may be delivered.
    #[must_use]
    pub fn must_wait(&self) -> bool {
        self.unwritten.len() >= UNWRITTEN
    }

    /// Renews the claim.
    pub fn heartbeat(&mut self, now_ms: i64) -> Result<(), StateError> {
        self.bridge.heartbeat(now_ms)
    }

    /// How the server's item stands, if it is known to be ours and recorded.
    pub fn standing(&self, id: &ItemId) -> Result<Option<Standing>, StateError> {
        let waiting = self
            .unwritten
            .iter()
            .any(|record| record.item.as_ref().is_some_and(|i| i.id.as_ref() == Some(id)));
        if waiting { Ok(Some(Standing::InOrder)) } else { self.account.standing(id) }
    }

    /// Whether any item is recorded.
    pub fn has_items(&self) -> Result<bool, StateError> {
        Ok(self.unwritten.iter().any(|record| record.item.is_some()) || self.account.has_items()?)
    }

    /// Whether the conversation may hold more of ours than is on record, and was not searched for it in vain.
    pub fn may_search(&self) -> Result<bool, StateError> {
        Ok(!self.has_items()? && !self.account.is_searched()?)
    }

    /// The conversation was searched, and what it holds is not of this source.
    pub fn searched(&mut self) -> Result<(), StateError> {
        self.account.set_searched()
    }

    /// Whether an item of the turn was refused for good.
    pub fn has_dead_letter(&self, turn: &ResponseId) -> Result<bool, StateError> {
        let waiting = self
            .unwritten
            .iter()
            .any(|record| record.dead_letter.as_ref().is_some_and(|letter| letter.turn == *turn));
        Ok(waiting || self.account.has_dead_letter(turn)?)
    }

    /// Turns whose closing edge is still owed.
    pub fn owed(&self) -> Result<Vec<ResponseId>, StateError> {
        self.account.owed()
    }
}
