//! What a lane writes down: its account in the ledger, and beside it the bridge files for siblings.

use std::collections::VecDeque;

use super::StateError;
use super::bridge::Bridge;
use super::ledger::{Account, EdgeStatus, OwedEdge, Record, Standing};
use crate::event::{Binding, Resume, Rewind};
use crate::ids::{HermesSessionId, ItemId, ResponseId};

/// Acknowledgements that may go unwritten before delivery waits. After a kill, read-back has to tell as many
/// items at most from new ones.
pub const UNWRITTEN: usize = 8;

/// The state of one mirror.
#[derive(Debug)]
pub struct Keeper {
    account: Account,
    bridge: Bridge,
    unwritten: VecDeque<Entry>,
    bound_ms: i64,
}

/// Something to be written down.
#[derive(Debug)]
enum Entry {
    Bound(Binding),
    Followed(HermesSessionId),
    Rewound(Rewind),
    Record(Box<Record>),
}

impl Entry {
    /// Where a mirror that stood at `binding` stands behind this.
    fn move_on(&self, binding: &mut Option<Binding>) {
        match (self, binding) {
            (Self::Bound(bound), binding) => *binding = Some(bound.clone()),
            (_, None) => {}
            (Self::Followed(child), Some(binding)) => {
                binding.session = child.clone();
                binding.resume.closed_turns = Some(0);
            }
            (Self::Rewound(rewind), Some(binding)) => {
                binding.session = rewind.session.clone();
                let closed_turns = Some(rewind.closed_turns);
                binding.resume = Resume { last: rewind.row, closed_turns, ..Resume::default() };
            }
            (Self::Record(record), Some(binding)) => {
                if let Some(mark) = &record.mark {
                    binding.resume.pass(mark);
                }
            }
        }
    }
}

impl Keeper {
    /// Joins an account and a bridge directory. A cursor that another program wrote there (a runner, in
    /// advance; a Python forwarder, meanwhile) goes before the ledger's, and seeds an empty ledger. Edges that are
    /// owed stand in both, so that either may be lost.
    pub fn new(account: Account, mut bridge: Bridge) -> Result<Self, StateError> {
        let known = account.binding()?;
        if let Some(theirs) = bridge.binding().filter(|_| known.is_none() || !bridge.is_ours()) {
            let behind = known
                .as_ref()
                .is_some_and(|ours| ours.session == theirs.session && ours.resume.last >= theirs.resume.last);
            if !behind {
                account.bind(&theirs)?;
            }
        }
        for OwedEdge { turn, failed } in bridge.owed() {
            if !account.is_settled(turn)? {
                let edge = Some((turn.clone(), EdgeStatus::Owed { failed: *failed }));
                account.record(&Record { edge, ..Record::default() })?;
            }
        }
        bridge.set_owed(account.owed()?);
        Ok(Self { account, bridge, unwritten: VecDeque::new(), bound_ms: 0 })
    }

    /// Where to go on, what is still to be written included; `None` where nothing was followed yet.
    pub fn binding(&self) -> Result<Option<Binding>, StateError> {
        let mut binding = self.account.binding()?;
        for entry in &self.unwritten {
            entry.move_on(&mut binding);
        }
        Ok(binding)
    }

    /// The session on which the claim lies.
    #[must_use]
    pub fn session(&self) -> Option<&HermesSessionId> {
        self.bridge.session()
    }

    /// When this process laid the claim, in ms since the epoch.
    #[must_use]
    pub fn bound_ms(&self) -> i64 {
        self.bound_ms
    }

    /// When the claim was last renewed, in ms since the epoch.
    #[must_use]
    pub fn heartbeat_ms(&self) -> i64 {
        self.bridge.heartbeat_ms()
    }

    /// A session was bound.
    pub fn bind(&mut self, binding: &Binding, now_ms: i64) -> Result<(), StateError> {
        self.bound_ms = now_ms;
        self.write(Entry::Bound(binding.clone()), now_ms)
    }

    /// The session goes on in another one.
    pub fn follow(&mut self, child: &HermesSessionId, now_ms: i64) -> Result<(), StateError> {
        self.write(Entry::Followed(child.clone()), now_ms)
    }

    /// An older copy of the database was put in place: what lies behind its last row is no longer what was delivered.
    pub fn rewind(&mut self, rewind: &Rewind, now_ms: i64) -> Result<(), StateError> {
        self.write(Entry::Rewound(rewind.clone()), now_ms)
    }

    /// The account, to be asked beside this.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Writes down what was acknowledged.
    pub fn record(&mut self, record: Record, now_ms: i64) -> Result<(), StateError> {
        self.write(Entry::Record(Box::new(record)), now_ms)
    }

    /// What can't be written is kept, and tried again with the next: a record without the binding before it would
    /// have the next start look for a session anew, and begin with its first row.
    fn write(&mut self, entry: Entry, now_ms: i64) -> Result<(), StateError> {
        self.unwritten.push_back(entry);
        self.catch_up(now_ms)
    }

    /// Tries again to write what could not be written.
    pub fn catch_up(&mut self, now_ms: i64) -> Result<(), StateError> {
        let mut bridged = Ok(());
        while let Some(entry) = self.unwritten.front() {
            match entry {
                Entry::Bound(binding) => self.account.bind(binding)?,
                Entry::Followed(child) => self.account.follow(child)?,
                Entry::Rewound(rewind) => self.account.rewind(rewind)?,
                Entry::Record(record) => self.account.record(record)?,
            }
            bridged = match self.unwritten.pop_front() {
                Some(Entry::Bound(binding)) => self.bridge.bind(&binding, now_ms),
                Some(Entry::Followed(child)) => self.bridge.follow(&child, now_ms),
                Some(Entry::Rewound(rewind)) => self.bridge.rewind(rewind, now_ms),
                Some(Entry::Record(record)) => self.bridge.advance(*record, now_ms),
                None => bridged,
            };
        }
        bridged
    }

    fn unwritten_records(&self) -> impl Iterator<Item = &Record> {
        self.unwritten.iter().filter_map(|entry| match entry {
            Entry::Record(record) => Some(record.as_ref()),
            Entry::Bound(_) | Entry::Followed(_) | Entry::Rewound(_) => None,
        })
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
            .unwritten_records()
            .any(|record| record.item.as_ref().is_some_and(|i| i.id.as_ref() == Some(id)));
        let anchors = waiting || self.bridge.item() == Some(id);
        if anchors { Ok(Some(Standing::InOrder)) } else { self.account.standing(id) }
    }

    /// Whether any item is recorded.
    pub fn has_items(&self) -> Result<bool, StateError> {
        let waiting = self.unwritten_records().any(|record| record.item.is_some());
        Ok(waiting || self.bridge.item().is_some() || self.account.has_items()?)
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
            .unwritten_records()
            .any(|record| record.dead_letter.as_ref().is_some_and(|letter| letter.turn == *turn));
        Ok(waiting || self.account.has_dead_letter(turn)?)
    }

    /// Whether the turn's closing edge was sent, or is tried again on its own.
    pub fn is_settled(&self, turn: &ResponseId) -> Result<bool, StateError> {
        let waiting =
            self.unwritten_records().any(|record| record.edge.as_ref().is_some_and(|(of, _)| of == turn));
        Ok(waiting || self.account.is_settled(turn)?)
    }

    /// The title that the conversation was last given.
    pub fn title(&self) -> Result<Option<String>, StateError> {
        let waiting = self.unwritten_records().filter_map(|record| record.title.clone()).last();
        Ok(waiting.or(self.account.title()?))
    }

    /// The closing edges that are still owed.
    pub fn owed(&self) -> Result<Vec<OwedEdge>, StateError> {
        self.account.owed()
    }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::{FILE, Key, Ledger};
    use super::*;
    use crate::event::{Mark, Resume};
    use crate::ids::{ConversationId, MessageId};

    #[test]
    fn a_binding_that_could_not_be_written_is_written_with_what_follows_it() {
        let dir = tempfile::tempdir().unwrap();
        let (ledger, _) = Ledger::open(dir.path()).unwrap();
        let conversation = ConversationId::new("c");
        let key = Key { server: "http://h", conversation: &conversation, source: dir.path() };
        let bridge = Bridge::open(dir.path().join("bridge"), 1.0).unwrap();
        let mut keeper = Keeper::new(Account::open(&ledger, key).unwrap(), bridge).unwrap();
        let other = rusqlite::Connection::open_with_flags(
            dir.path().join(FILE),
            rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE,
        )
        .unwrap();
        let full = "CREATE TRIGGER full BEFORE UPDATE ON mirror BEGIN SELECT RAISE(ABORT, 'full'); END";
        other.execute_batch(full).unwrap();

        let mut binding = Binding { session: HermesSessionId::new("s"), resume: Resume::default() };
        keeper.bind(&binding, 1).unwrap_err();
        let mark = Mark { row: MessageId::new(3), items: None, passed: None, turn: None, closed_turns: 0 };
        let record = Record { mark: Some(mark), ..Record::default() };
        keeper.record(record.clone(), 2).unwrap_err();
        other.execute_batch("DROP TRIGGER full").unwrap();
        keeper.record(record, 3).unwrap();

        binding.resume.last = MessageId::new(3);
        let kept = keeper.binding().unwrap().unwrap();
        assert_eq!((kept.session, kept.resume.last), (binding.session, binding.resume.last));
    }
}
