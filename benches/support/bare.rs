//! The yardstick for a backlog: the very requests that the mirror sent, by a loop that does nothing else. One
//! connection and one request in flight for each conversation, as the mirror has.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, anyhow};

use super::http::Client;
use super::role::Part;
use super::script;
use super::sink::Arrival;

/// Writes down what is to be sent: conversation and body, a line each. No JSON body has a line break in it.
pub fn write_requests(path: &Path, arrivals: &[Arrival]) -> Result<()> {
    let lines = arrivals.iter().fold(String::new(), |mut lines, arrival| {
        lines.extend([&arrival.session.to_string(), " ", &arrival.body, "\n"]);
        lines
    });
    fs::write(path, lines).with_context(|| format!("write {}", path.display()))
}

/// Sends everything and ends.
pub fn play(part: &Part) -> Result<()> {
    let text = fs::read_to_string(&part.requests)?;
    let mut by_session: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for line in text.lines() {
        let (session, body) = line.split_once(' ').context("a line without a body")?;
        by_session.entry(session.parse()?).or_default().push(body);
    }
    thread::scope(|scope| {
        let lanes: Vec<_> = by_session
            .iter()
            .map(|(session, bodies)| {
                scope.spawn(|| -> Result<()> {
                    let mut client = Client::connect(part.sink, &script::conversation(*session))?;
                    bodies.iter().try_for_each(|body| client.post_event(body))
                })
            })
            .collect();
        lanes.into_iter().try_for_each(|lane| lane.join().map_err(|_| anyhow!("a lane panicked"))?)
    })
}
