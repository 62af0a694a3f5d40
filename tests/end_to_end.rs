//! The whole pipeline, from rows that Hermes stores to what the conversation shows.

mod support;

use support::hermes_db::Message;
use support::mirror::{PATIENCE, World, write};
use support::shown::{shown, usages};
use support::sink::State;

#[test]
fn a_plain_turn_runs_shows_its_messages_and_is_idle() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "hello", "hi there");
    world.expect_all(mirror, &["1 user: hello", "running 1", "1 agent: hi there", "idle 1"]);
}

#[test]
fn tools_in_parallel_reasoning_and_prose_keep_their_order() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    db.append("s", &Message::user("look"));
    world.expect(&["1 user: look", "running 1"]);
    let calls = [("c1", "terminal", r#"{"a": 1}"#), ("c2", "read_file", "{}"), ("c3", "terminal", "{broken")];
    db.append("s", &Message::tools("let me look", &calls).thinking("two files"));
    for id in ["c1", "c2", "c3"] {
        db.append("s", &Message::result(id, &format!("result of {id}")));
    }
    db.append("s", &Message::answer("done"));
    let expected = [
        "1 user: look",
        "running 1",
        "think: two files",
        "1 agent: let me look",
        r#"1 call c1 terminal {"a": 1}"#,
        "1 call c2 read_file {}",
        "1 call c3 terminal {broken",
        "1 output c1: result of c1",
        "1 output c2: result of c2",
        "1 output c3: result of c3",
        "1 agent: done",
        "idle 1",
    ];
    world.expect_all(mirror, &expected);
}

#[test]
fn three_turns_in_one_read_are_idle_each_behind_its_own_items() {
    let world = World::new();
    let mut db = world.hermes();
    for n in 1..=3 {
        db.turn("s", &format!("q{n}"), &format!("a{n}"));
    }
    let expected = [
        "1 user: q1",
        "running 1",
        "1 agent: a1",
        "idle 1", //
        "3 user: q2",
        "running 3",
        "3 agent: a2",
        "idle 3", //
        "5 user: q3",
        "running 5",
        "5 agent: a3",
        "idle 5",
    ];
    world.expect_all(world.attach(), &expected);
}

#[test]
fn an_empty_ending_closes_its_turn_and_so_does_an_interrupted_one() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "say nothing", "");
    db.append("s", &Message::user("slow"));
    db.append("s", &Message::tools("", &[("c1", "terminal", "{}")]));
    db.append("s", &Message::result("c1", r#"{"output":"[Command interrupted]","exit_code":130}"#));
    db.append("s", &Message::answer("Operation interrupted.").unfinished());
    let expected = [
        "1 user: say nothing",
        "running 1",
        "idle 1",
        "3 user: slow",
        "running 3",
        "3 call c1 terminal {}",
        r#"3 output c1: {"output":"[Command interrupted]","exit_code":130}"#,
        "3 agent: Operation interrupted.",
        "interrupted 3",
        "idle 3",
    ];
    world.expect_all(mirror, &expected);
}

#[test]
fn images_go_along_and_text_that_nobody_typed_is_marked() {
    let world = World::new();
    let mut db = world.hermes();
    let image = r#"[{"type":"text","text":"what is this"},{"type":"image_url","image_url":{"url":"data:image/png;base64,QQ=="}}]"#;
    db.turn("s", &format!("\0json:{image}"), "a pixel");
    db.append("s", &Message::user("[Continuing toward your standing goal] Goal"));
    db.append("s", &Message::answer("on it"));
    let expected = [
        "1 user: what is this <data:image/png;base64,QQ==>",
        "running 1",
        "1 agent: a pixel",
        "idle 1",
        "3 meta: [Continuing toward your standing goal] Goal",
        "running 3",
        "3 agent: on it",
        "idle 3",
    ];
    world.expect_all(world.attach(), &expected);
}

#[test]
fn usage_is_told_once_for_a_closed_turn_with_the_model_of_the_row() {
    let world = World::new();
    write(&world.path("hermes/config.yaml"), "model: from-the-configuration\n");
    let mut db = world.hermes();
    let mirror = world.attach();
    db.append("s", &Message::user("q"));
    db.count_tokens("s", 900, 10, 100);
    db.append("s", &Message::tools("", &[("c1", "terminal", "{}")]));
    db.append("s", &Message::result("c1", "ok"));
    db.count_tokens("s", 900, 5, 100);
    db.append("s", &Message::answer("a"));
    let told = |n: usize| {
        let enough = |state: &State| usages(state.events(&world.conversation)).len() >= n;
        assert!(world.sink.wait_until(enough, PATIENCE));
    };
    told(1);
    // A turn that used nothing has nothing to tell.
    db.turn("s", "q2", "a2");
    let shown = |state: &State| shown(state.events(&world.conversation)).len() >= 10;
    assert!(world.sink.wait_until(shown, PATIENCE));
    db.count_tokens("s", 100, 1, 0);
    db.commit(|write| write.execute("UPDATE sessions SET model = NULL", []).unwrap());
    db.turn("s", "q3", "a3");
    told(2);
    mirror.stop();
    let events = world.sink.events(&world.conversation);
    assert_eq!(usages(&events), ["2000/15/200 stub-model", "2100/16/200 from-the-configuration"]);
}
