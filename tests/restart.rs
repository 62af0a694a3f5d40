//! A mirror that is killed or stopped anywhere goes on where it was.

mod support;

use support::fault::Fault;
use support::hermes_db::{HermesDb, Message};
use support::mirror::{PATIENCE, World};
use support::sink::State;

/// One turn with a row of five items and one of each other kind.
fn turn(db: &mut HermesDb) {
    db.append("s", &Message::user("look"));
    let calls = [("c1", "terminal", "{}"), ("c2", "terminal", "{}"), ("c3", "terminal", "{}")];
    db.append("s", &Message::tools("let me look", &calls).thinking("hm"));
    for id in ["c1", "c2", "c3"] {
        db.append("s", &Message::result(id, "ok"));
    }
    db.append("s", &Message::answer("done"));
}

const STORED: [&str; 9] = [
    "1 user: look",
    "1 agent: let me look",
    "1 call c1 terminal {}",
    "1 call c2 terminal {}",
    "1 call c3 terminal {}",
    "1 output c1: ok",
    "1 output c2: ok",
    "1 output c3: ok",
    "1 agent: done",
];

fn is_stored(line: &str) -> bool {
    !["running", "idle", "think"].iter().any(|live| line.starts_with(live))
}

/// What is stored of what was shown; live events may come again after a restart.
fn stored(world: &World) -> Vec<String> {
    world.shown().into_iter().filter(|line| is_stored(line)).collect()
}

fn count(state: &State, world: &World) -> usize {
    state.items(&world.conversation).len()
}

#[test]
fn a_kill_behind_each_item_repeats_no_more_than_the_one_in_doubt() {
    for items in 1..STORED.len() {
        let world = World::new();
        let mut db = world.hermes();
        turn(&mut db);
        // What comes behind the item is held back until the mirror is dead.
        let mut posted = 0;
        world.sink.script(move |request| {
            let is_item = request.json()["type"] == "external_conversation_item";
            posted += usize::from(is_item);
            if is_item && posted > items { Fault::Stall } else { Fault::None }
        });
        let mirror = world.attach();
        let held = |state: &State| state.requests.iter().any(|request| request.fault == Fault::Stall);
        assert!(world.sink.wait_until(held, PATIENCE));
        mirror.kill();
        assert_eq!(stored(&world), STORED[..items]);
        world.sink.heal();
        let mirror = world.attach();
        assert!(world.sink.wait_until(|state| count(state, &world) >= STORED.len(), PATIENCE));
        mirror.stop();
        assert_eq!(stored(&world), STORED, "killed behind item {items}");
        assert_eq!(world.shown().last().unwrap(), "idle 1");
    }
}

#[test]
fn a_stop_behind_each_item_repeats_nothing() {
    for items in 1..STORED.len() {
        let world = World::new();
        world.configure("[deliver]\ndrain_ms = 20000\n");
        let mut db = world.hermes();
        turn(&mut db);
        let mirror = world.attach();
        assert!(world.sink.wait_until(|state| count(state, &world) >= items, PATIENCE));
        mirror.stop();
        let mirror = world.attach();
        assert!(world.sink.wait_until(|state| count(state, &world) >= STORED.len(), PATIENCE));
        mirror.stop();
        assert_eq!(stored(&world), STORED, "stopped behind item {items}");
    }
}

#[test]
fn a_kill_between_the_last_item_and_its_idle_edge_still_gives_the_edge_once() {
    let world = World::new();
    let mut db = world.hermes();
    db.turn("s", "q", "a");
    world.sink.script(
        |request| if request.json()["data"]["status"] == "idle" { Fault::Stall } else { Fault::None },
    );
    let mirror = world.attach();
    let held = |state: &State| state.requests.iter().any(|request| request.fault == Fault::Stall);
    assert!(world.sink.wait_until(held, PATIENCE));
    mirror.kill();
    world.sink.heal();
    let mirror = world.attach();
    db.turn("s", "q2", "a2");
    let expected = [
        "1 user: q",
        "running 1",
        "1 agent: a",
        "idle 1", //
        "3 user: q2",
        "running 3",
        "3 agent: a2",
        "idle 3",
    ];
    world.expect_all(mirror, &expected);
}

#[test]
fn a_mirror_that_starts_amid_a_turn_says_that_it_runs_under_the_opener_s_name() {
    let world = World::new();
    let mut db = world.hermes();
    db.append("s", &Message::user("q"));
    db.append("s", &Message::tools("", &[("c1", "terminal", "{}")]));
    let mirror = world.attach();
    let before = ["1 user: q", "running 1", "1 call c1 terminal {}"];
    world.expect_all(mirror, &before);
    let said = |state: &State| running(state, &world);
    let known = world.sink.events(&world.conversation).len();
    let mirror = world.attach();
    let more = |state: &State| said(state) > 0 && state.events(&world.conversation).len() > known;
    assert!(world.sink.wait_until(more, PATIENCE));
    db.append_all("s", &[Message::result("c1", "ok"), Message::answer("a")]);
    let after = ["1 output c1: ok", "1 agent: a", "idle 1"];
    world.expect_all(mirror, &[&before[..], &after].concat());
}

/// How often `running` was posted.
fn running(state: &State, world: &World) -> usize {
    state.events(&world.conversation).iter().filter(|event| event["data"]["status"] == "running").count()
}

#[test]
fn a_server_that_restarts_amid_a_tool_hears_again_that_the_turn_runs() {
    let world = World::new();
    world.configure("[turns]\nreassert_ms = 50\n");
    let mut db = world.hermes();
    let mirror = world.attach();
    db.append("s", &Message::user("q"));
    db.append("s", &Message::tools("", &[("c1", "terminal", "{}")]));
    world.expect(&["1 user: q", "running 1", "1 call c1 terminal {}"]);
    world.sink.restart();
    let before = running_now(&world);
    assert!(world.sink.wait_until(|state| running(state, &world) > before, PATIENCE));
    db.append_all("s", &[Message::result("c1", "ok"), Message::answer("a")]);
    let expected =
        ["1 user: q", "running 1", "1 call c1 terminal {}", "1 output c1: ok", "1 agent: a", "idle 1"];
    world.expect_all(mirror, &expected);
}

fn running_now(world: &World) -> usize {
    world.sink.events(&world.conversation).iter().filter(|event| event["data"]["status"] == "running").count()
}

#[test]
fn between_turns_nothing_is_said() {
    let world = World::new();
    world.configure("[turns]\nreassert_ms = 50\n");
    let other = world.sink.create_conversation();
    let mut db = world.hermes();
    db.session("busy", None);
    let mirrors = [("s", &world.conversation), ("busy", &other)].map(|(session, conversation)| {
        format!("[[mirror]]\nconversation = '{conversation}'\nsession = '{session}'\n")
    });
    let mirror = world.run(&[], &mirrors.concat());
    db.turn("s", "q", "a");
    world.expect(&["1 user: q", "running 1", "1 agent: a", "idle 1"]);
    let usage = |state: &State| state.events(&world.conversation).len() >= 5;
    assert!(world.sink.wait_until(usage, PATIENCE));
    let quiet = world.sink.events(&world.conversation).len();
    // Twenty reassertions of another conversation's turn are the clock.
    db.append("busy", &Message::user("long"));
    let ticks =
        |state: &State| state.events(&other).iter().filter(|e| e["data"]["status"] == "running").count();
    assert!(world.sink.wait_until(|state| ticks(state) >= 20, PATIENCE));
    assert_eq!(world.sink.events(&world.conversation).len(), quiet);
    db.append("busy", &Message::answer("done"));
    mirror.stop();
    let requests = world.sink.requests();
    let about = requests.iter().filter(|request| request.path.contains(&world.conversation));
    let (asked, told): (Vec<_>, Vec<_>) = about.partition(|request| request.method == "GET");
    // The binding is told by a request of its own; where the conversation stands is asked at the start.
    assert_eq!((asked.len(), told.len()), (2, quiet + 1));
}
