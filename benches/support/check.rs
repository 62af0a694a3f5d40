//! The check before any figure: every row arrived, once, complete and in order.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::script::{Kind, tag};
use super::sink::Arrival;

/// When the first item of each row arrived, row 1 first; or what is wrong with the run.
pub fn first_arrivals(arrivals: &[Arrival], rows: u32) -> Result<Vec<Duration>> {
    let mut firsts: Vec<Duration> = Vec::new();
    let mut items = 0;
    for arrival in arrivals {
        let Some(item) = Item::of(arrival)? else { continue };
        let newest = u32::try_from(firsts.len())?;
        if item.seq == newest + 1 {
            complete(newest, items)?;
            firsts.push(arrival.at);
            items = 0;
        } else if item.seq <= newest && (item.seq < newest || items >= Kind::of(newest).items()) {
            bail!("{} arrived again after {}", item.name(), tag("row", newest));
        } else if item.seq > newest {
            bail!("{} arrived straight after {}", item.name(), tag("row", newest));
        }
        items += 1;
        ensure!(item.fits(), "{} arrived as a {}", item.name(), item.item_type);
    }
    let newest = u32::try_from(firsts.len())?;
    complete(newest, items)?;
    ensure!(
        newest == rows,
        "{newest} of {rows} rows arrived; the next would have been {}",
        tag("row", newest + 1)
    );
    Ok(firsts)
}

fn complete(seq: u32, items: u32) -> Result<()> {
    let wanted = if seq == 0 { 0 } else { Kind::of(seq).items() };
    ensure!(items == wanted, "{} arrived with {items} of {wanted} items", tag("row", seq));
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

    fn name(&self) -> String {
        tag("row", self.seq)
    }

    fn fits(&self) -> bool {
        match Kind::of(self.seq) {
            Kind::User | Kind::Answer => self.item_type == "message",
            Kind::Call => matches!(self.item_type.as_str(), "function_call" | "message"),
            Kind::ToolResult => self.item_type == "function_call_output",
        }
    }
}
