//! Stage 4, turn and compaction detect: items to deliveries. Pure: the clock is the caller's.
//!
//! A user row opens a turn, an assistant row without tool calls closes it. All items between carry the
//! response id of the opener; a `running` edge goes before the first of them, an `idle` edge behind the last.
//! Turns are counted as rows pass by, never by asking the database again.

use crate::event::{Delivery, Mark, OpenTurn, Post, Resume, RowItems, Step, Trace, TurnEffect, Usage};
use crate::ids::{MessageId, ResponseId};

/// The stage: where one conversation's turn stands.
#[derive(Debug, Default)]
pub struct Turns {
    open: Option<OpenTurn>,
    closed: u64,
    partial: Option<(MessageId, u32)>,
    /// Of the row that is taken now.
    trace: Option<Trace>,
    usage: Option<Usage>,
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

    /// What the next step asks to be delivered, in order.
    pub fn apply(&mut self, step: Step) -> Vec<Delivery> {
        match step {
            Step::Bound(binding) => self.resume(binding.resume),
            Step::Continued(_) => {
                self.closed = 0;
                Vec::new()
            }
            Step::Rewound(_) => {
                (self.open, self.partial) = (None, None);
                Vec::new()
            }
            Step::Row(row) => self.row(row),
            Step::Usage(usage) => self.usage(usage),
        }
    }

    /// Takes the turn up where delivery had come to. A turn that was left behind in another session is over.
    fn resume(&mut self, resume: Resume) -> Vec<Delivery> {
        self.trace = None;
        let left =
            self.open.take().filter(|turn| resume.turn.as_ref().is_none_or(|known| known.id != turn.id));
        let mut deliveries: Vec<_> = left
            .map(|turn| Delivery { post: Some(Post::Idle { turn: turn.id, failed: false }), mark: None })
            .into_iter()
            .collect();
        self.partial = resume.partial;
        self.closed = resume.closed_turns.unwrap_or(0);
        self.open = resume.turn;
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
                deliveries.push(Delivery { post: Some(Post::Running { turn: turn.id }), mark: None });
            }
            None => {}
        }
        deliveries
    }

    fn row(&mut self, row: RowItems) -> Vec<Delivery> {
        self.trace = row.trace;
        let mut deliveries = self.begin(&row);
        self.closed += u64::from(row.counts_as_turn_end);
        let closes = row.effect == TurnEffect::Closes;
        if closes && let Some(turn) = &mut self.open {
            turn.closed = true;
        }
        let delivered = match self.partial.take() {
            Some((partial, items)) if partial == row.row => items,
            other => {
                self.partial = other.filter(|(partial, _)| *partial > row.row);
                0
            }
        };
        let turn = self.open.as_ref().map_or_else(|| ResponseId::for_turn(row.row), |turn| turn.id.clone());
        let count = row.items.len();
        let mut whole = count == 0;
        for (place, item) in (1_u32..).zip(row.items).filter(|(place, _)| *place > delivered) {
            let last = usize::try_from(place) == Ok(count);
            whole |= last;
            let mark = self.mark(row.row, (!last).then_some(place));
            let post = Post::Item { item, turn: turn.clone(), row: row.row, place };
            deliveries.push(Delivery { post: Some(post), mark: Some(mark) });
        }
        if !closes && (count == 0 || !whole) {
            // Nothing (more) to show: only the cursor moves.
            deliveries.push(Delivery { post: None, mark: Some(self.mark(row.row, None)) });
        }
        if closes {
            self.open = None;
            let mark = self.mark(row.row, None);
            deliveries.push(Delivery { post: Some(Post::Idle { turn, failed: false }), mark: Some(mark) });
        }
        deliveries
    }

    /// Opens the turn that a user row begins, or one whose beginning was missed.
    fn begin(&mut self, row: &RowItems) -> Vec<Delivery> {
        let opens = match row.effect {
            TurnEffect::Opens => true,
            TurnEffect::Continues | TurnEffect::Closes => self.open.is_none(),
            TurnEffect::None => false,
        };
        if !opens {
            return Vec::new();
        }
        let id = ResponseId::for_turn(row.row);
        self.open = Some(OpenTurn { id: id.clone(), closed: false });
        vec![Delivery { post: Some(Post::Running { turn: id }), mark: None }]
    }

    fn usage(&mut self, usage: Usage) -> Vec<Delivery> {
        if self.usage.as_ref() == Some(&usage) {
            return Vec::new();
        }
        self.usage = Some(usage.clone());
        vec![Delivery { post: Some(Post::Usage(usage)), mark: None }]
    }

    fn mark(&self, row: MessageId, items: Option<u32>) -> Mark {
        let trace = self.trace.filter(|_| items.is_none());
        Mark { row, items, trace, turn: self.open.clone(), closed_turns: self.closed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Binding, Item};
    use crate::ids::HermesSessionId;

    fn row(id: i64, effect: TurnEffect, items: &[&str]) -> Step {
        let items = items.iter().map(|text| Item::Assistant { text: (*text).to_owned() }).collect();
        let counts_as_turn_end = effect == TurnEffect::Closes;
        Step::Row(RowItems { row: MessageId::new(id), trace: None, effect, counts_as_turn_end, items })
    }

    /// `R7` running, `I7` idle, `text@7` an item, `>7` the cursor alone; each with the mark behind it.
    fn show(deliveries: &[Delivery]) -> Vec<String> {
        let short = |id: &ResponseId| id.as_str().replace("hermes_turn_", "");
        let one = |delivery: &Delivery| {
            let post = match &delivery.post {
                Some(Post::Running { turn }) => format!("R{}", short(turn)),
                Some(Post::Idle { turn, .. }) => format!("I{}", short(turn)),
                Some(Post::Item { item: Item::Assistant { text }, turn, .. }) => {
                    format!("{text}@{}", short(turn))
                }
                Some(other) => format!("{other:?}"),
                None => String::new(),
            };
            let mark = delivery.mark.as_ref().map_or_else(String::new, |mark| {
                let items = mark.items.map_or_else(String::new, |n| format!(".{n}"));
                let turn = mark.turn.as_ref().map_or_else(String::new, |turn| {
                    format!(" {}{}", if turn.closed { "owes" } else { "in" }, short(&turn.id))
                });
                format!(">{}{items}{turn}", mark.row)
            });
            post + &mark
        };
        deliveries.iter().map(one).collect()
    }

    fn all(turns: &mut Turns, steps: Vec<Step>) -> Vec<String> {
        steps.into_iter().flat_map(|step| show(&turns.apply(step))).collect()
    }

    #[test]
    fn a_turn_runs_from_its_user_row_to_the_answer_and_is_idle_behind_it() {
        let steps = vec![
            row(1, TurnEffect::Opens, &["hi"]),
            row(2, TurnEffect::Continues, &["a", "b"]),
            row(3, TurnEffect::Continues, &["out"]),
            row(4, TurnEffect::Closes, &["bye"]),
        ];
        let expected =
            ["R1", "hi@1>1 in1", "a@1>2.1 in1", "b@1>2 in1", "out@1>3 in1", "bye@1>4 owes1", "I1>4"];
        assert_eq!(all(&mut Turns::new(), steps), expected);
    }

    #[test]
    fn three_turns_in_one_read_give_three_idle_edges_each_behind_its_own_items() {
        let steps = (0..3)
            .flat_map(|n| {
                [row(2 * n + 1, TurnEffect::Opens, &["q"]), row(2 * n + 2, TurnEffect::Closes, &["a"])]
            })
            .collect();
        let shown = all(&mut Turns::new(), steps);
        let edges: Vec<_> = shown.iter().filter(|s| s.starts_with(['R', 'I'])).map(|s| &s[..2]).collect();
        assert_eq!(edges, ["R1", "I1", "R3", "I3", "R5", "I5"]);
    }

    #[test]
    fn an_empty_final_answer_closes_the_turn() {
        let steps = vec![row(1, TurnEffect::Opens, &["q"]), row(2, TurnEffect::Closes, &[])];
        assert_eq!(all(&mut Turns::new(), steps), ["R1", "q@1>1 in1", "I1>2"]);
    }

    #[test]
    fn a_repeat_moves_the_cursor_and_leaves_the_turn_open() {
        let steps = vec![
            row(1, TurnEffect::Opens, &["q"]),
            row(2, TurnEffect::None, &[]),
            row(3, TurnEffect::Closes, &["a"]),
        ];
        assert_eq!(all(&mut Turns::new(), steps), ["R1", "q@1>1 in1", ">2 in1", "a@1>3 owes1", "I1>3"]);
    }

    #[test]
    fn a_start_that_was_missed_is_recovered_from_the_first_row_seen() {
        let steps = vec![row(5, TurnEffect::Continues, &["a"]), row(6, TurnEffect::Closes, &["b"])];
        assert_eq!(all(&mut Turns::new(), steps), ["R5", "a@5>5 in5", "b@5>6 owes5", "I5>6"]);
    }

    fn bound(last: i64, partial: Option<(i64, u32)>, turn: Option<(i64, bool)>) -> Step {
        let resume = Resume {
            last: MessageId::new(last),
            begins: false,
            partial: partial.map(|(row, items)| (MessageId::new(row), items)),
            turn: turn.map(|(id, closed)| OpenTurn { id: ResponseId::for_turn(MessageId::new(id)), closed }),
            closed_turns: Some(0),
        };
        Step::Bound(Binding { session: HermesSessionId::new("s"), resume })
    }

    #[test]
    fn a_restart_inside_a_row_goes_on_with_its_next_item() {
        let steps = vec![
            bound(1, Some((2, 1)), Some((1, false))),
            row(2, TurnEffect::Continues, &["a", "b", "c"]),
            row(3, TurnEffect::Closes, &["d"]),
        ];
        let expected = ["R1", "b@1>2.2 in1", "c@1>2 in1", "d@1>3 owes1", "I1>3"];
        assert_eq!(all(&mut Turns::new(), steps), expected);
    }

    #[test]
    fn a_row_that_became_shorter_than_what_was_delivered_of_it_is_passed() {
        let steps = vec![bound(1, Some((2, 3)), Some((1, false))), row(2, TurnEffect::Continues, &["a"])];
        assert_eq!(all(&mut Turns::new(), steps), ["R1", ">2 in1"]);
    }

    #[test]
    fn an_idle_edge_that_was_owed_at_the_stop_is_delivered_at_the_start() {
        let steps = vec![bound(4, None, Some((1, true))), row(5, TurnEffect::Opens, &["q"])];
        assert_eq!(all(&mut Turns::new(), steps), ["I1>4", "R5", "q@5>5 in5"]);
    }

    #[test]
    fn usage_is_told_once_while_it_stays_the_same() {
        let usage = Usage { input_tokens: 5, ..Usage::default() };
        let mut turns = Turns::new();
        assert_eq!(turns.apply(Step::Usage(usage.clone())).len(), 1);
        assert_eq!(turns.apply(Step::Usage(usage.clone())).len(), 0);
        assert_eq!(turns.apply(Step::Usage(Usage { input_tokens: 6, ..usage })).len(), 1);
    }
}
