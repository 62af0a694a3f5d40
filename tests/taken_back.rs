//! What the person takes back while it waits for the server is not shown.

#![allow(clippy::unwrap_used, reason = "what can't be set up can't be tested")]

mod support;

use support::acts::{TWO_TURNS, two_turns};
use support::fault::Fault;
use support::hermes_db::{HermesDb, Version};
use support::mirror::{Mirror, World};
use support::sink::Request;

/// A mirror that tells of each row that it reads.
fn attach(world: &World) -> Mirror {
    world.attach_logging("warn,hermes_mirror=trace")
}

/// The server takes no item: it says that it did not act, and to come again in 2 s, so that a test has that long
/// before the next try.
fn busy(request: &Request) -> Fault {
    let is_item = request.json()["type"] == "external_conversation_item";
    if is_item { Fault::RetryAfter(429, "2".to_owned()) } else { Fault::None }
}

/// The server fails at each item, and nothing is certain then.
fn failing(request: &Request) -> Fault {
    let is_item = request.json()["type"] == "external_conversation_item";
    if is_item { Fault::Status(503) } else { Fault::None }
}

/// Waits until an item was tried in vain and the lane holds the rows up to `row` behind it.
fn wait_for_backlog(mirror: &Mirror, row: i64) {
    mirror.wait_for_log("trying again");
    mirror.wait_for_log(&format!("row={row}\n"));
}

/// A turn that is shown, one that waits for a server of this kind, and is taken back meanwhile.
fn take_back_a_turn(world: &World, server: fn(&Request) -> Fault) -> (HermesDb, Mirror) {
    let mut db = world.hermes();
    let mirror = attach(world);
    db.turn("s", "one", "first");
    world.expect(&TWO_TURNS[..4]);
    world.sink.script(server);
    db.turn("s", "two", "second");
    wait_for_backlog(&mirror, 4);
    db.undo("s", 3);
    mirror.wait_for_log("taken back while they waited");
    world.sink.heal();
    (db, mirror)
}

#[test]
fn rows_that_are_taken_back_while_they_wait_for_the_server_are_not_shown() {
    let world = World::new();
    let (mut db, mirror) = take_back_a_turn(&world, busy);
    db.turn("s", "three", "third");
    let third = ["running 3", "idle 3", "5 user: three", "running 5", "5 agent: third", "idle 5"];
    let expected = [&TWO_TURNS[..4], &third].concat();
    world.expect_all(mirror, &expected);
    world.expect_all(world.attach(), &expected);
}

#[test]
fn of_a_turn_that_is_taken_back_after_its_first_row_went_out_the_rest_is_not_shown_and_it_is_closed() {
    let world = World::new();
    let (mut db, mirror) = take_back_a_turn(&world, failing);
    db.turn("s", "three", "third");
    // What is in doubt is sent: losing it would be worse.
    let end =
        ["3 user: two", "running 3", "idle 3", "5 user: three", "running 5", "5 agent: third", "idle 5"];
    world.expect_all(mirror, &[&TWO_TURNS[..4], &end].concat());
}

#[test]
fn rows_that_were_taken_back_while_they_waited_are_shown_once_they_are_live_again() {
    for restarted in [false, true] {
        let world = World::new();
        let (mut db, mirror) = take_back_a_turn(&world, busy);
        let mut expected = [&TWO_TURNS[..4], &["running 3", "idle 3"]].concat();
        world.expect(&expected);
        let mirror = if restarted {
            mirror.stop();
            let mirror = attach(&world);
            mirror.wait_for_log("mirroring");
            mirror
        } else {
            mirror
        };
        db.commit(|write| write.execute("UPDATE messages SET active = 1", []).unwrap());
        expected.extend(&TWO_TURNS[4..]);
        world.expect_all(mirror, &expected);
    }
}

#[test]
fn of_rows_that_wait_while_they_are_edited_each_is_shown_once() {
    for version in [Version::V18, Version::V19, Version::V20] {
        let world = World::new();
        let mut db = HermesDb::create_as(&world.db_path(), version);
        db.session("s", Some(&world.workspace()));
        let mirror = attach(&world);
        world.sink.script(busy);
        two_turns(&mut db);
        wait_for_backlog(&mirror, 4);
        db.edit("s", 2);
        db.turn("s", "two, better", "second, better");
        mirror.wait_for_log("taken back while they waited");
        world.sink.heal();
        let expected = [
            "running 1",
            "idle 1",
            "5 user: one",
            "running 5",
            "5 agent: first",
            "idle 5",
            "7 user: two, better",
            "running 7",
            "7 agent: second, better",
            "idle 7",
        ];
        world.expect_all(mirror, &expected);
        world.expect_all(world.attach(), &expected);
    }
}

#[test]
fn rows_that_a_compaction_archives_while_they_wait_are_shown() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = attach(&world);
    world.sink.script(busy);
    two_turns(&mut db);
    wait_for_backlog(&mirror, 4);
    db.compact_in_place("s", support::acts::KEPT, support::hermes_db::Summary::Row("sum"));
    mirror.wait_for_log("row=8\n");
    world.sink.heal();
    world.expect_all(mirror, &support::acts::then(&["compaction: sum"]));
}
