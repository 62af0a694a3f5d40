//! Turns that are not the open one, and yet may not be over.

use std::collections::BTreeSet;

use crate::event::{Item, RowItems};
use crate::ids::ResponseId;

/// Most turns that are remembered. Each stands for a process that was killed amid a tool, or for one that writes to
/// the session beside another.
const MOST: usize = 8;

/// Calls that have no result yet.
#[derive(Debug, Default)]
pub struct Calls(BTreeSet<String>);

impl Calls {
    /// These.
    #[must_use]
    pub fn of(calls: Vec<String>) -> Self {
        Self(calls.into_iter().collect())
    }

    /// Notes what a row's items call and answer.
    pub fn pass(&mut self, items: &[Item]) {
        for item in items {
            match item {
                Item::FunctionCall { call_id, .. } => {
                    self.0.insert(call_id.clone());
                }
                Item::FunctionCallOutput { call_id, .. } => {
                    self.0.remove(call_id);
                }
                _ => {}
            }
        }
    }

    /// Whether all have their results.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whatever is open will have no result.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Turns that were set aside, oldest first, and the one that lapsed.
#[derive(Debug, Default)]
pub struct SetAside {
    turns: Vec<Turn>,
    /// The turn that the session's end settled: what comes next is its, unless a user row comes first.
    lapsed: Option<ResponseId>,
}

#[derive(Debug)]
struct Turn {
    id: ResponseId,
    calls: Calls,
    settled: bool,
}

impl SetAside {
    /// Sets a turn aside that has calls without results. Returns one that is to be settled for it.
    pub fn put(&mut self, id: ResponseId, calls: Calls) -> Option<ResponseId> {
        self.keep(Turn { id, calls, settled: false })
    }

    /// Takes up a turn that was set aside before a restart.
    pub fn recall(&mut self, id: ResponseId, calls: Calls, settled: bool) {
        let _ = self.keep(Turn { id, calls, settled });
    }

    /// Notes a turn that was settled without a row that closed it.
    pub fn lapse(&mut self, id: ResponseId, calls: Calls) {
        self.lapsed = Some(id.clone());
        let _ = self.keep(Turn { id, calls, settled: true });
    }

    fn keep(&mut self, mut turn: Turn) -> Option<ResponseId> {
        if let Some(known) = self.turns.iter_mut().find(|known| known.id == turn.id) {
            known.calls.0.append(&mut turn.calls.0);
            return None;
        }
        let full = self.turns.len() >= MOST;
        let oldest = full.then(|| self.turns.remove(0));
        self.turns.push(turn);
        oldest.filter(|turn| !turn.settled).map(|turn| turn.id)
    }

    /// A turn begins while none is open: the one that lapsed is over.
    pub fn forget_lapsed(&mut self) {
        self.lapsed = None;
    }

    /// The turn one of whose calls the row answers.
    pub fn answered_by(&mut self, row: &RowItems) -> Option<ResponseId> {
        let answered = row.items.iter().find_map(|item| match item {
            Item::FunctionCallOutput { call_id, .. } => Some(call_id),
            _ => None,
        })?;
        let turn = self.turns.iter_mut().find(|turn| turn.calls.0.contains(answered))?;
        turn.calls.0.remove(answered);
        Some(turn.id.clone())
    }

    /// The turn whose calls all have their results, and whose model has the word.
    #[must_use]
    pub fn answered(&self) -> Option<ResponseId> {
        let turn = self.turns.iter().find(|turn| !turn.settled && turn.calls.is_empty())?;
        Some(turn.id.clone())
    }

    /// Notes what a row of one of these turns calls.
    pub fn pass(&mut self, id: &ResponseId, items: &[Item]) {
        if let Some(turn) = self.turns.iter_mut().find(|turn| turn.id == *id) {
            turn.calls.pass(items);
        }
    }

    /// A row has closed one of these turns.
    pub fn end(&mut self, id: &ResponseId) {
        self.turns.retain(|turn| turn.id != *id);
    }

    /// The turn that a row goes on with while none is open: the one whose call it answers, else the one that
    /// lapsed.
    pub fn take_up(&mut self, answered: Option<&ResponseId>) -> Option<(ResponseId, Calls)> {
        let id = answered.cloned().or_else(|| self.lapsed.take())?;
        self.lapsed.take_if(|lapsed| *lapsed == id);
        let at = self.turns.iter().position(|turn| turn.id == id)?;
        let turn = self.turns.remove(at);
        Some((turn.id, turn.calls))
    }

    /// Settles the turns that are not settled. They are remembered all the same: a result may come still.
    pub fn settle(&mut self) -> Vec<ResponseId> {
        let open = self.turns.iter_mut().filter(|turn| !turn.settled);
        let settled = open.map(|turn| {
            turn.settled = true;
            turn.id.clone()
        });
        settled.collect()
    }
}
