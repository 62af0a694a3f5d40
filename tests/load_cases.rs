//! Many conversations, and many rows at once.

#![allow(clippy::unwrap_used, reason = "a helper that fails is to fail its test")]

mod support;

use std::time::Duration;

use support::fault::Fault;
use support::hermes_db::HermesDb;
use support::mirror::{PATIENCE, World};
use support::shown::shown;
use support::sink::State;

const TURNS: usize = 5;

/// A conversation's user messages.
fn asked(state: &State, conversation: &str) -> Vec<String> {
    let lines = shown(state.events(conversation)).into_iter();
    lines.filter_map(|line| Some(line.split_once(" user: ")?.1.to_owned())).collect()
}

#[test]
fn i1_of_fifty_conversations_one_refused_one_slow_and_one_gone_hold_no_other_up() {
    let world = World::new();
    let mut db = HermesDb::create(&world.db_path());
    db.conn.execute_batch("PRAGMA synchronous = OFF").unwrap();
    let conversations: Vec<String> = (0..50).map(|_| world.sink.create_conversation()).collect();
    let (refused, slow, gone) =
        (conversations[7].clone(), conversations[20].clone(), conversations[33].clone());
    world.sink.script({
        let (refused, slow, gone) = (refused.clone(), slow.clone(), gone.clone());
        move |request| match &request.path {
            path if path.contains(&slow) => Fault::Stall,
            path if path.contains(&gone) => Fault::Status(404),
            path if path.contains(&refused) && request.json()["type"] == "external_conversation_item" => {
                Fault::Status(400)
            }
            _ => Fault::None,
        }
    });
    let mirrors: Vec<String> = conversations
        .iter()
        .enumerate()
        .map(|(n, id)| {
            db.session(&format!("s{n}"), None);
            format!("[[mirror]]\nconversation = '{id}'\nsession = 's{n}'\n")
        })
        .collect();
    let mirror = world.run(&[], &mirrors.concat());
    for turn in 0..TURNS {
        for n in 0..conversations.len() {
            db.turn(&format!("s{n}"), &format!("q{turn}"), "a");
        }
    }
    let expected: Vec<String> = (0..TURNS).map(|turn| format!("q{turn}")).collect();
    let sound: Vec<&String> =
        conversations.iter().filter(|id| ![&refused, &slow, &gone].contains(id)).collect();
    let all_sound = |state: &State| sound.iter().all(|id| asked(state, id) == expected);
    assert!(world.sink.wait_until(all_sound, 3 * PATIENCE));
    assert_eq!(world.sink.items(&refused).len() + world.sink.items(&slow).len(), 0);
    // The refused items are dead letters, and their turns failed; the lane itself has gone on.
    let failed =
        |state: &State| shown(state.events(&refused)).iter().filter(|l| l.contains("failed")).count();
    assert!(world.sink.wait_until(|state| failed(state) == TURNS, PATIENCE));
    world.sink.heal();
    let healed = |state: &State| [&slow, &gone].iter().all(|id| asked(state, id) == expected);
    assert!(world.sink.wait_until(healed, PATIENCE));
    mirror.stop();
    for id in sound {
        assert_eq!(world.sink.items(id).len(), 2 * TURNS);
    }
}

#[test]
fn k3_ten_thousand_rows_from_an_offline_night_drain_in_order_and_bounded_memory() {
    const ROWS: usize = 10_000;
    let world = World::new();
    let mut db = world.hermes();
    world.sink.stop();
    let mirror = world.attach();
    db.turn("s", "q", "a");
    mirror.wait_for_log("trying again, nothing is lost");
    db.commit(|write| {
        let sql = "INSERT INTO messages (session_id, role, content, timestamp, tool_call_id) \
                   VALUES ('s', 'tool', ?1, ?2, 'c')";
        for n in 0..ROWS - 2 {
            let at = world.launch + f64::from(u32::try_from(n).unwrap());
            write.prepare_cached(sql).unwrap().execute((format!("{n} {}", "x".repeat(2_000)), at)).unwrap();
        }
    });
    world.sink.restart();
    let all = |state: &State| state.items(&world.conversation).len() >= ROWS;
    assert!(
        world.sink.wait_until(all, Duration::from_mins(3)),
        "{}",
        world.sink.items(&world.conversation).len()
    );
    let peak = mirror.peak_memory_kb();
    mirror.stop();
    println!("{peak} kB at most");
    // The rows themselves are 20 MB.
    assert!(peak < 40_000, "{peak} kB");
    let items = world.sink.items(&world.conversation);
    assert_eq!(items.len(), ROWS);
    let numbers = items[2..].iter().map(|item| item["output"].as_str().unwrap().split_once(' ').unwrap().0);
    assert!(numbers.eq((0..ROWS - 2).map(|n| n.to_string()).collect::<Vec<_>>()));
}
