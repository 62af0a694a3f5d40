//! Stage 4, turn and compaction detect: items to deliveries. Pure: the clock is the caller's.
//!
//! A user row opens a turn, an assistant row without tool calls closes it. All items between carry the
//! response id of the opener; a `running` edge goes behind the opener's own (before the first of a turn whose opener was
//! missed), an `idle` edge behind the last.
//! Turns are counted as rows pass by, never by asking the database again.
//!
//! Not every turn is closed by a row: Hermes is killed, a model call fails. Such a turn is settled on evidence.
//! - The next user row settles the one that is open, before its own turn begins.
//! - But where calls of the open turn have no result yet, that row may be another process's, on the same session
//!   (facts/hermes.md 1.13). The open turn is set aside: a result that comes for it is shown under its id, and so is
//!   what the model says while the turn that took its place waits for its own tools. It is settled with its last
//!   word, or when that other turn is (`aside`).
//! - The session's end settles the open turn.
//!
//! Should rows of a settled turn come after all, it goes on under its own id.

use crate::event::{
    Beside, Delivery, Item, Mark, OpenTurn, Passed, Post, Resume, RowItems, Step, TurnEffect, Waiting,
};
use crate::ids::{MessageId, ResponseId};

mod aside;
mod interrupts;
mod notices;

use aside::{Calls, SetAside};
use interrupts::Interrupts;
use notices::Notices;

/// The stage: where one conversation's turn stands.
#[derive(Debug, Default)]
pub struct Turns {
    open: Option<OpenTurn>,
    /// Calls of the open turn that have no result yet.
    calls: Calls,
    aside: SetAside,
    closed: u64,
    partial: Option<(MessageId, u32)>,
    /// Whether a session was bound before: the next one is another.
    bound: bool,
    /// Of the row that is taken now.
    passed: Option<Passed>,
    interrupts: Interrupts,
    notices: Notices,
}

impl Turns {
    /// A conversation of which nothing is known yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The turn that runs now; `None` between turns.
    #[must_use]
    pub fn running(&self) -> Option<&ResponseId> {
        self.open.as_ref().filter(|turn| !turn.closed).map(|turn| &turn.id)
    }

    /// What an earlier run left: the turn at the cursor, if it was settled and no row had closed it, and the title
    /// that the conversation was given.
    pub fn recall(&mut self, lapsed: Option<ResponseId>, title: Option<String>) {
        self.aside = SetAside::default();
        if let Some(turn) = lapsed {
            self.aside.lapse(turn, Calls::default());
        }
        self.notices.recall_title(title);
    }

    /// What the next step asks to be delivered, in order.
    pub fn apply(&mut self, step: Step) -> Vec<Delivery> {
        match step {
            Step::Bound(binding) => self.resume(binding.resume),
            Step::Continued(_) => {
                self.closed = 0;
                Vec::new()
            }
            Step::Rewound(rewind) => {
                (self.open, self.partial, self.closed) = (None, None, rewind.closed_turns);
                self.calls.clear();
                self.aside = SetAside::default();
                Vec::new()
            }
            Step::Row(row) => self.row(row),
            Step::Usage(usage) => self.notices.usage(usage),
            Step::Beside(Beside::Ended) => self.lapse(),
            Step::Beside(Beside::Undone(undo)) => vec![notices::undone(undo)],
            Step::Beside(beside) => self.notices.beside(beside),
        }
    }

    /// Takes the turn up where delivery had come to. A turn that was left behind in another session is over.
    fn resume(&mut self, resume: Resume) -> Vec<Delivery> {
        self.passed = None;
        let mut deliveries = Vec::new();
        if std::mem::replace(&mut self.bound, true) {
            deliveries = self.lapse();
            self.aside = SetAside::default();
        }
        self.partial = resume.partial;
        self.closed = resume.closed_turns.unwrap_or(0);
        self.open = resume.turn;
        self.calls.clear();
        for Waiting { turn, calls, settled } in resume.waiting {
            if self.open.as_ref().is_some_and(|open| open.id == turn) {
                self.calls = Calls::of(calls);
            } else {
                self.aside.recall(turn, Calls::of(calls), settled);
            }
        }
        match self.open.take() {
            Some(turn) if turn.closed => {
                let mark = self.mark(resume.last, None);
                deliveries.push(Delivery {
                    post: Some(Post::Idle { turn: turn.id, failed: false }),
                    mark: Some(mark),
                });
            }
            Some(turn) => {
                self.open = Some(turn.clone());
                deliveries.push(running(turn.id));
            }
            None => {}
        }
        deliveries
    }

    /// Passes a row that the conversation holds already.
    pub fn pass_over(&mut self, row: &RowItems) {
        self.closed += u64::from(row.counts_as_turn_end);
    }

    fn row(&mut self, row: RowItems) -> Vec<Delivery> {
        self.passed = Some(row.trace.map_or(Passed::TakenBack, Passed::Delivered));
        if let Some(turn) = self.speaks_aside(&row) {
            return self.row_aside(row, turn);
        }
        let late = self.aside.answered_by(&row);
        let mut deliveries = self.begin(&row, late.as_ref());
        self.calls.pass(&row.items);
        self.closed += u64::from(row.counts_as_turn_end);
        let closes = match row.effect {
            TurnEffect::Closes => true,
            TurnEffect::Settles => self.open.is_some(),
            TurnEffect::Opens | TurnEffect::Continues | TurnEffect::None => false,
        };
        if closes && let Some(turn) = &mut self.open {
            turn.closed = true;
        }
        let interrupted = self.interrupts.pass(&row);
        let (id, todos) = (row.row, row.notes.todos.clone());
        let shows_boundary = notices::shows_boundary(&row);
        let turn = late.or_else(|| self.open.as_ref().map(|turn| turn.id.clone()));
        let turn = turn.unwrap_or_else(|| ResponseId::for_turn(id));
        let opens = row.effect == TurnEffect::Opens;
        self.items(row, &turn, &mut deliveries);
        if opens {
            // Behind what the person said, which has not to wait for it, and before what the model will say.
            deliveries.push(running(turn.clone()));
        }
        deliveries.extend(todos.and_then(|todos| self.notices.todos(todos)));
        if shows_boundary {
            deliveries.extend(self.notices.compacted());
        }
        if closes {
            self.open = None;
            self.calls.clear();
            if interrupted {
                deliveries.push(notices::interrupted(&turn));
            }
            deliveries.extend(self.aside.settle().into_iter().map(idle));
            let mark = self.mark(id, None);
            deliveries.push(Delivery { post: Some(Post::Idle { turn, failed: false }), mark: Some(mark) });
        }
        deliveries
    }

    /// The turn that was set aside whose model speaks in a row: that of the open one waits for its tools.
    fn speaks_aside(&self, row: &RowItems) -> Option<ResponseId> {
        let goes_on = matches!(row.effect, TurnEffect::Continues | TurnEffect::Closes);
        let is_result = row.items.iter().any(|item| matches!(item, Item::FunctionCallOutput { .. }));
        let waits = self.open.is_some() && !self.calls.is_empty();
        (goes_on && !is_result && waits).then(|| self.aside.answered())?
    }

    /// A row of a turn that was set aside. The open one runs on.
    fn row_aside(&mut self, row: RowItems, turn: ResponseId) -> Vec<Delivery> {
        self.closed += u64::from(row.counts_as_turn_end);
        let (id, closes) = (row.row, row.effect == TurnEffect::Closes);
        self.aside.pass(&turn, &row.items);
        let interrupted = self.interrupts.pass(&row);
        let todos = row.notes.todos.clone();
        let mut deliveries = Vec::new();
        self.items(row, &turn, &mut deliveries);
        deliveries.extend(todos.and_then(|todos| self.notices.todos(todos)));
        if closes {
            self.aside.end(&turn);
            if interrupted {
                deliveries.push(notices::interrupted(&turn));
            }
            let mark = self.mark(id, None);
            deliveries.push(Delivery { post: Some(Post::Idle { turn, failed: false }), mark: Some(mark) });
            deliveries.extend(self.running().cloned().map(running));
        }
        deliveries
    }

    /// The row's items, but for those that were delivered before; and the cursor behind them.
    fn items(&mut self, row: RowItems, turn: &ResponseId, deliveries: &mut Vec<Delivery>) {
        let delivered = match self.partial.take() {
            Some((partial, items)) if partial == row.row => items,
            other => {
                self.partial = other.filter(|(partial, _)| *partial > row.row);
                0
            }
        };
        let count = row.items.len();
        let mut whole = count == 0;
        for (place, item) in (1_u32..).zip(row.items).filter(|(place, _)| *place > delivered) {
            let last = usize::try_from(place) == Ok(count);
            whole |= last;
            let mark = self.mark(row.row, (!last).then_some(place));
            let post = Post::Item { item, turn: turn.clone(), row: row.row, place };
            deliveries.push(Delivery { post: Some(post), mark: Some(mark) });
        }
        if row.effect != TurnEffect::Closes && (count == 0 || !whole) {
            // Nothing (more) to show: only the cursor moves.
            deliveries.push(Delivery { post: None, mark: Some(self.mark(row.row, None)) });
        }
    }

    /// Opens the turn that a user row begins, goes on with one that was settled, or recovers one whose beginning
    /// was missed. `late`: the turn whose call the row answers, if that is not the open one.
    fn begin(&mut self, row: &RowItems, late: Option<&ResponseId>) -> Vec<Delivery> {
        let own = ResponseId::for_turn(row.row);
        let mut deliveries = Vec::new();
        let id = match row.effect {
            TurnEffect::Opens => {
                deliveries.extend(self.leave(&own));
                own
            }
            TurnEffect::Continues | TurnEffect::Closes if self.open.is_none() => {
                let (id, calls) = self.aside.take_up(late).unwrap_or((own, Calls::default()));
                self.calls = calls;
                id
            }
            _ => return deliveries,
        };
        self.open = Some(OpenTurn { id: id.clone(), closed: false });
        if row.effect != TurnEffect::Opens {
            deliveries.push(running(id));
        }
        deliveries
    }

    /// Another turn takes the place of the one that is open.
    fn leave(&mut self, next: &ResponseId) -> Option<Delivery> {
        let calls = std::mem::take(&mut self.calls);
        let Some(turn) = self.open.take().filter(|turn| turn.id != *next) else {
            // Nothing of a turn that lapsed before a whole new one began is still to come.
            self.aside.forget_lapsed();
            return None;
        };
        let settled = if calls.is_empty() { Some(turn.id) } else { self.aside.put(turn.id, calls) };
        settled.map(idle)
    }

    /// The session was ended: what is still open will not be closed by a row.
    fn lapse(&mut self) -> Vec<Delivery> {
        let mut settled = self.aside.settle();
        if let Some(turn) = self.open.take() {
            self.aside.lapse(turn.id.clone(), std::mem::take(&mut self.calls));
            settled.push(turn.id);
        }
        settled.into_iter().map(idle).collect()
    }

    fn mark(&self, row: MessageId, items: Option<u32>) -> Mark {
        let passed = self.passed.filter(|_| items.is_none());
        Mark { row, items, passed, turn: self.open.clone(), closed_turns: self.closed }
    }
}

fn running(turn: ResponseId) -> Delivery {
    Delivery { post: Some(Post::Running { turn }), mark: None }
}

/// The edge of a turn that no row closed. The cursor does not move with it.
fn idle(turn: ResponseId) -> Delivery {
    Delivery { post: Some(Post::Idle { turn, failed: false }), mark: None }
}

#[cfg(test)]
mod tests;
