//! `dead-letters replay`: each letter's fate, said as it is known.

use std::process::ExitCode;

use anyhow::Context;
use hermes_mirror::config::{Config, rules};
use hermes_mirror::ids::ItemId;
use hermes_mirror::pipeline::replay::{Replay, Replayed};
use hermes_mirror::state::ledger::{DeadLetter, DeadLetters};
use serde::Serialize;

use crate::cli::attach::obey;
use crate::cli::output;

/// A letter's fate, as JSON.
#[derive(Serialize)]
struct Fate {
    id: i64,
    conversation: String,
    outcome: &'static str,
    item: Option<ItemId>,
    reason: Option<String>,
}

/// Sends the letters again. Exit code 1 unless each is in its conversation then.
pub fn run(
    letters: Option<&DeadLetters>,
    chosen: Vec<DeadLetter>,
    mut config: Config,
    base_url: Option<&str>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    if let Some(base_url) = base_url {
        obey("--base-url", rules::base_url(base_url))?;
        base_url.clone_into(&mut config.deliver.base_url);
    }
    let mut fates = Vec::new();
    let mut printed = Ok(());
    let mut all_there = true;
    let mut ended = Ok(());
    if let Some(letters) = letters {
        let replay = Replay::new(&config.deliver, Box::new(|name| std::env::var(name).ok()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let report = |letter: &DeadLetter, became: &Replayed| {
            all_there &= matches!(became, Replayed::Found(_) | Replayed::Delivered(_));
            if json {
                fates.push(fate(letter, became));
            } else if printed.is_ok() {
                // A reader that is gone is no reason to stop halfway.
                printed = output::print(format!("{}: {}\n", letter.id, in_words(became)).as_bytes());
            }
        };
        ended = runtime.block_on(replay.run(letters, chosen, report));
    }
    printed?;
    if json {
        output::print(output::json(&fates)?.as_bytes())?;
    }
    ended.context("the replay was cut short; the next one looks again for what was not reported")?;
    Ok(if all_there { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn in_words(became: &Replayed) -> String {
    match became {
        Replayed::Found(item) => format!("already there (item {item}), removed from the list"),
        Replayed::Delivered(Some(item)) => format!("delivered as item {item}"),
        Replayed::Delivered(None) => "delivered".to_owned(),
        Replayed::Refused(reason) => format!("refused again: {reason}"),
        Replayed::Failed(reason) => format!("not delivered: {reason}"),
        Replayed::NotTried(reason) => format!("not sent: {reason}"),
    }
}

fn fate(letter: &DeadLetter, became: &Replayed) -> Fate {
    let (outcome, item, reason) = match became {
        Replayed::Found(item) => ("found", Some(item.clone()), None),
        Replayed::Delivered(item) => ("delivered", item.clone(), None),
        Replayed::Refused(reason) => ("refused", None, Some(reason.clone())),
        Replayed::Failed(reason) => ("failed", None, Some(reason.clone())),
        Replayed::NotTried(reason) => ("not_tried", None, Some(reason.clone())),
    };
    Fate { id: letter.id, conversation: letter.conversation.clone(), outcome, item, reason }
}
