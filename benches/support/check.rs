//! The check before any figure: every row arrived, once, complete and in order.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::script::{self, Kind, ROWS_PER_TURN, tag};
use super::sink::Arrival;

/// When the first item of each row arrived, row 1 first; or what is wrong with the run.
pub fn first_arrivals(arrivals: &[Arrival], rows: u32, sessions: u32) -> Result<Vec<Duration>> {
    let mut firsts = vec![None; usize::try_from(rows)?];
    let mut shown: Vec<Shown> = (0..sessions).map(Shown::nothing_in).collect();
    for arrival in arrivals {
        let Some(item) = Item::of(arrival)? else { continue };
        let shown = shown.get_mut(usize::try_from(arrival.session)?).with_context(|| {
            format!("{} arrived in a conversation that is none of the run's", tag("row", item.seq))
        })?;
        if shown.newest != Some(item.seq) {
            let due = shown.next(sessions);
            ensure!(
                item.seq == due && due <= rows,
                "{} arrived in {} where {} was due",
                tag("row", item.seq),
                script::conversation(shown.session),
                tag("row", due)
            );
            shown.complete()?;
            shown.newest = Some(item.seq);
            let first = firsts.get_mut(usize::try_from(item.seq - 1)?).context("a row too many")?;
            *first = Some(arrival.at);
        }
        shown.items.push(item.item_type);
    }
    shown.iter_mut().try_for_each(Shown::complete)?;
    let arrived = firsts.iter().flatten().count();
    let missing = (1..).zip(&firsts).find(|(_, first)| first.is_none()).map(|(seq, _)| tag("row", seq));
    ensure!(
        missing.is_none(),
        "{arrived} of {rows} rows arrived; the first that is missing is {}",
        missing.unwrap_or_default()
    );
    Ok(firsts.into_iter().flatten().collect())
}

/// What one conversation shows so far.
struct Shown {
    session: u32,
    /// The row that arrived last, and the types of its items.
    newest: Option<u32>,
    items: Vec<String>,
}

impl Shown {
    fn nothing_in(session: u32) -> Self {
        Self { session, newest: None, items: Vec::new() }
    }

    /// The row that has to come next: sessions take turns.
    fn next(&self, sessions: u32) -> u32 {
        match self.newest {
            None => self.session * ROWS_PER_TURN + 1,
            Some(seq) if seq % ROWS_PER_TURN == 0 => seq + ROWS_PER_TURN * (sessions - 1) + 1,
            Some(seq) => seq + 1,
        }
    }

    /// Whether the newest row came as the items it should be, each once. Leaves the list empty for the next.
    fn complete(&mut self) -> Result<()> {
        let Some(seq) = self.newest else { return Ok(()) };
        let wanted = Kind::of(seq).item_types();
        self.items.sort_unstable();
        ensure!(
            self.items == wanted,
            "{} arrived as {:?} and should be {wanted:?}",
            tag("row", seq),
            self.items
        );
        self.items.clear();
        Ok(())
    }
}

/// A conversation item and the row it is about.
struct Item {
    seq: u32,
    item_type: String,
}

impl Item {
    /// Nothing if the event is not an item: status, usage and the like are not what is measured.
    fn of(arrival: &Arrival) -> Result<Option<Self>> {
        let event: Value = serde_json::from_str(&arrival.body).context("an event that is not JSON")?;
        if event.get("type").and_then(Value::as_str) != Some("external_conversation_item") {
            return Ok(None);
        }
        let item_type = event.pointer("/data/item_type").and_then(Value::as_str).unwrap_or("nameless thing");
        let seq = script::seq_in(&arrival.body)
            .filter(|seq| *seq > 0)
            .with_context(|| format!("an item of no row that was written: {}", arrival.body))?;
        Ok(Some(Self { seq, item_type: item_type.to_owned() }))
    }
}

/// Shows that the check accepts a good run and refuses bad ones: a check that never fails proves nothing.
pub fn prove() -> Result<()> {
    let turn = |session: u32, first: u32| {
        let items = [
            (first, "message"),
            (first + 1, "function_call"),
            (first + 1, "message"),
            (first + 2, "function_call_output"),
            (first + 3, "message"),
        ];
        items.map(|(seq, item_type)| made(session, seq, item_type)).to_vec()
    };
    // Two conversations, whose items may come in any order among each other.
    let good = [turn(1, 5), turn(0, 1), turn(0, 9)].concat();
    let accepted = |arrivals: &[Arrival]| first_arrivals(arrivals, 12, 2).is_ok();
    ensure!(accepted(&good), "the check refuses a good run");
    for index in 0..good.len() {
        let (head, tail) = good.split_at(index);
        let Some((moved, rest)) = tail.split_first() else { continue };
        let copy = std::slice::from_ref(moved);
        ensure!(!accepted(&[head, rest].concat()), "the check misses a loss");
        ensure!(!accepted(&[head, copy, copy, rest].concat()), "the check misses a repetition");
        ensure!(!accepted(&[&good, copy].concat()), "the check misses a late repetition");
        let astray = Arrival { session: 1 - moved.session, ..moved.clone() };
        ensure!(!accepted(&[head, &[astray], rest].concat()), "the check misses a wrong conversation");
    }
    let mut swapped = good.clone();
    swapped.swap(8, 9);
    ensure!(!accepted(&swapped), "the check misses a wrong order");
    ensure!(
        !accepted(&[good.as_slice(), &[made(1, 13, "message")]].concat()),
        "the check misses a row too many"
    );
    Ok(())
}

fn made(session: u32, seq: u32, item_type: &str) -> Arrival {
    let data = json!({"item_type": item_type, "item_data": tag("row", seq), "response_id": "r"});
    let event = json!({"type": "external_conversation_item", "data": data});
    Arrival { at: Duration::ZERO, session, body: event.to_string() }
}
