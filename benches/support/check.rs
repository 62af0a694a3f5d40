//! The check before any figure: every row arrived, once, complete and in order.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::script::{Kind, tag};
use super::sink::Arrival;

/// When the first item of each row arrived, row 1 first; or what is wrong with the run.
pub fn first_arrivals(arrivals: &[Arrival], rows: u32) -> Result<Vec<Duration>> {
    let mut firsts: Vec<Duration> = Vec::new();
    let mut items = Vec::new();
    for arrival in arrivals {
        let Some(item) = Item::of(arrival)? else { continue };
        let newest = u32::try_from(firsts.len())?;
        if item.seq == newest + 1 {
            complete(newest, &mut items)?;
            firsts.push(arrival.at);
        } else {
            ensure!(
                item.seq >= newest,
                "{} arrived again after {}",
                tag("row", item.seq),
                tag("row", newest)
            );
            ensure!(
                item.seq == newest,
                "{} arrived straight after {}",
                tag("row", item.seq),
                tag("row", newest)
            );
        }
        items.push(item.item_type);
    }
    let newest = u32::try_from(firsts.len())?;
    complete(newest, &mut items)?;
    ensure!(
        newest == rows,
        "{newest} of {rows} rows arrived; the next would have been {}",
        tag("row", newest + 1)
    );
    Ok(firsts)
}

/// Whether row `seq` came as the items it should be, each once. Leaves the list empty for the next.
fn complete(seq: u32, items: &mut Vec<String>) -> Result<()> {
    let wanted: &[&str] = if seq == 0 { &[] } else { Kind::of(seq).item_types() };
    items.sort_unstable();
    ensure!(items == wanted, "{} arrived as {items:?} and should be {wanted:?}", tag("row", seq));
    items.clear();
    Ok(())
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
        let seq = arrival
            .body
            .split("row-")
            .nth(1)
            .and_then(|rest| rest.get(..6))
            .and_then(|digits| digits.parse().ok())
            .with_context(|| format!("an item of no row that was written: {}", arrival.body))?;
        Ok(Some(Self { seq, item_type: item_type.to_owned() }))
    }
}

/// Shows that the check accepts a good run and refuses bad ones: a check that never fails proves nothing.
pub fn prove() -> Result<()> {
    let good: Vec<Arrival> = [
        made(1, "message"),
        made(2, "function_call"),
        made(2, "message"),
        made(3, "function_call_output"),
        made(4, "message"),
    ]
    .into();
    let accepted = |arrivals: &[Arrival]| first_arrivals(arrivals, 4).is_ok();
    ensure!(accepted(&good), "the check refuses a good run");
    for index in 0..good.len() {
        let (head, tail) = good.split_at(index);
        let Some((moved, rest)) = tail.split_first() else { continue };
        let copy = std::slice::from_ref(moved);
        ensure!(!accepted(&[head, rest].concat()), "the check misses a loss");
        ensure!(!accepted(&[head, copy, copy, rest].concat()), "the check misses a repetition");
        ensure!(!accepted(&[&good, copy].concat()), "the check misses a late repetition");
    }
    let mut swapped = good.clone();
    swapped.swap(3, 4);
    ensure!(!accepted(&swapped), "the check misses a wrong order");
    ensure!(!accepted(&[good.as_slice(), &[made(5, "message")]].concat()), "the check misses a row too many");
    Ok(())
}

fn made(seq: u32, item_type: &str) -> Arrival {
    let data = json!({"item_type": item_type, "item_data": tag("row", seq), "response_id": "r"});
    let event = json!({"type": "external_conversation_item", "data": data});
    Arrival { at: Duration::ZERO, body: event.to_string() }
}
