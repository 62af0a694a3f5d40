//! Which session a mirror takes, and which it leaves alone.

mod support;

use support::hermes_db::{HermesDb, Version, now};
use support::mirror::{PATIENCE, World, write};
use support::shown::shown;

fn lines(turn: i64, asked: &str, answer: &str) -> Vec<String> {
    vec![
        format!("{turn} user: {asked}"),
        format!("running {turn}"),
        format!("{turn} agent: {answer}"),
        format!("idle {turn}"),
    ]
}

fn expect(world: &World, conversation: &str, expected: &[String]) {
    world.expect_in(conversation, &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_session_that_is_named_is_followed_wherever_it_is() {
    let world = World::new();
    let mut db = world.hermes();
    db.session_with("old", &[("started_at", 1.0.into()), ("source", "telegram".to_owned().into())]);
    let mirror = format!("[[mirror]]\nconversation = '{}'\nsession = 'old'\n", world.conversation);
    let mirror = world.run(&[], &mirror);
    db.turn("s", "not", "this");
    db.turn("old", "q", "a");
    expect(&world, &world.conversation, &lines(3, "q", "a"));
    mirror.stop();
}

#[test]
fn the_newest_session_of_the_workspace_is_taken_through_a_link_too() {
    let world = World::new();
    let link = world.path("link");
    std::os::unix::fs::symlink(world.workspace(), &link).unwrap();
    let mut db = HermesDb::create(&world.db_path());
    db.session("older", Some(&link));
    db.session("newer", Some(&link));
    db.session("elsewhere", Some(&world.path("home")));
    for session in ["older", "newer", "elsewhere"] {
        db.turn(session, "q", session);
    }
    let mirror = world.attach();
    expect(&world, &world.conversation, &lines(3, "q", "newer"));
    mirror.stop();
}

#[test]
fn a_mirror_that_finds_no_session_says_once_that_it_waits() {
    let world = World::new();
    let mut db = HermesDb::create(&world.db_path());
    let mirror = world.attach();
    mirror.wait_for_log("no session fits yet; waiting for one");
    db.session("elsewhere", Some(&world.path("home")));
    db.turn("elsewhere", "q", "not this");
    db.session("s", Some(&world.workspace()));
    db.turn("s", "q", "a");
    expect(&world, &world.conversation, &lines(3, "q", "a"));
    assert_eq!(mirror.stop().matches("no session fits yet").count(), 1);
}

#[test]
fn a_session_from_before_the_launch_is_not_its_own() {
    let world = World::new();
    let mut db = HermesDb::create(&world.db_path());
    let work = world.workspace().display().to_string();
    let at = |seconds: f64| [("cwd", work.clone().into()), ("started_at", (world.launch + seconds).into())];
    db.session_with("before", &at(-10.5));
    db.turn("before", "q", "before");
    let mirror = world.attach();
    mirror.wait_for_log("located the database");
    db.session_with("skewed", &at(-9.5));
    db.turn("skewed", "q", "skewed");
    expect(&world, &world.conversation, &lines(3, "q", "skewed"));
    mirror.stop();
}

#[test]
fn a_lone_session_without_a_directory_is_taken() {
    let world = World::new();
    let mut db = HermesDb::create_as(&world.db_path(), Version::V13);
    db.session("lone", None);
    db.turn("lone", "q", "a");
    let mirror = world.attach();
    expect(&world, &world.conversation, &lines(1, "q", "a"));
    mirror.stop();
}

#[test]
fn among_several_without_a_directory_none_is_taken_and_that_is_said_once() {
    let world = World::new();
    let mut db = HermesDb::create_as(&world.db_path(), Version::V13);
    for session in ["one", "two"] {
        db.session(session, None);
        db.turn(session, "q", "a");
    }
    let mirror = world.attach();
    mirror.wait_for_log("several sessions could be this terminal's and nothing tells them apart: one, two");
    db.turn("one", "q", "a");
    let log = mirror.stop();
    assert_eq!(log.matches("several sessions").count(), 1, "{log}");
    assert_eq!(world.shown(), Vec::<String>::new());
}

#[test]
fn sessions_that_nobody_sits_at_are_no_candidates() {
    let world = World::new();
    let mut db = HermesDb::create(&world.db_path());
    let work = world.workspace().display().to_string();
    let cwd = ("cwd", work.clone().into());
    let text = |text: &str| text.to_owned().into();
    let later = ("started_at", (now() + 100.0).into());
    db.session("real", Some(&world.workspace()));
    db.session_with(
        "sub",
        &[cwd.clone(), later.clone(), ("source", text("subagent")), ("parent_session_id", text("real"))],
    );
    db.session_with(
        "branch",
        &[cwd.clone(), later.clone(), ("model_config", text(r#"{"_branched_from": "real"}"#))],
    );
    db.session_with(
        "delegate",
        &[cwd.clone(), later.clone(), ("model_config", text(r#"{"_delegate_from": "real"}"#))],
    );
    db.session_with("bg_120000_abcdef", &[cwd.clone(), later.clone()]);
    db.session_with("tool", &[cwd, later, ("source", text("tool"))]);
    for session in ["sub", "branch", "delegate", "bg_120000_abcdef", "tool", "real"] {
        db.turn(session, "q", session);
    }
    let mirror = world.attach();
    expect(&world, &world.conversation, &lines(11, "q", "real"));
    mirror.stop();
}

#[test]
fn a_session_that_was_bound_stays_bound() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "one", "first");
    expect(&world, &world.conversation, &lines(1, "one", "first"));
    mirror.stop();
    db.session("newer", Some(&world.workspace()));
    db.turn("newer", "not", "this");
    let mirror = world.attach();
    db.turn("s", "two", "second");
    let expected = [lines(1, "one", "first"), lines(5, "two", "second")].concat();
    expect(&world, &world.conversation, &expected);
    mirror.stop();
}

fn place_claim(world: &World, bridge: &str, session: &str, last: i64, launch: f64, age_ms: f64) {
    let heartbeat = now() * 1_000.0 - age_ms;
    let claim = format!(
        r#"{{"hermes_session_id": "{session}", "last_id": {last}, "launch_epoch_s": {launch}, "heartbeat_ms": {heartbeat:.0}}}"#
    );
    write(&world.bridge(bridge).join("hermes_forwarder.json"), &claim);
}

#[test]
fn a_cursor_that_was_placed_in_advance_is_honoured() {
    let world = World::new();
    let mut db = HermesDb::create(&world.db_path());
    db.session_with("fork", &[("started_at", 1.0.into())]);
    db.turn("fork", "copied", "history");
    place_claim(&world, "a", "fork", 2, 0.0, 3_600_000.0);
    let mirror = world.attach();
    db.turn("fork", "q", "a");
    expect(&world, &world.conversation, &lines(3, "q", "a"));
    mirror.stop();
}

#[test]
fn a_sibling_s_fresh_claim_is_respected_and_the_next_session_taken() {
    let world = World::new();
    let mut db = HermesDb::create(&world.db_path());
    db.session("mine", Some(&world.workspace()));
    db.session("theirs", Some(&world.workspace()));
    place_claim(&world, "python", "theirs", 0, world.launch - 1.0, 0.0);
    db.turn("theirs", "q", "theirs");
    db.turn("mine", "q", "mine");
    let mirror = world.attach();
    expect(&world, &world.conversation, &lines(3, "q", "mine"));
    mirror.stop();
}

#[test]
fn a_stale_claim_is_taken_over() {
    let world = World::new();
    let mut db = world.hermes();
    place_claim(&world, "python", "s", 0, world.launch - 1.0, 31_000.0);
    db.turn("s", "q", "a");
    let mirror = world.attach();
    expect(&world, &world.conversation, &lines(1, "q", "a"));
    mirror.stop();
}

#[test]
fn a_session_whose_continuation_a_sibling_mirrors_is_taken() {
    let world = World::new();
    let mut db = world.hermes();
    db.turn("s", "q", "a");
    let kept = support::hermes_db::Kept { head: 0, tail: 1 };
    db.compact_by_fork("s", "child", kept, support::hermes_db::Summary::Row("sum"));
    place_claim(&world, "python", "child", 4, world.launch - 1.0, 0.0);
    let mirror = world.run(&["--once"], &mirror_of_workspace(&world, &world.conversation));
    let (code, log) = mirror.wait();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(world.shown(), Vec::<String>::new());
}

fn mirror_of_workspace(world: &World, conversation: &str) -> String {
    let bridge = world.bridge(conversation).display().to_string();
    let (work, launch) = (world.workspace().display().to_string(), world.launch);
    format!(
        "[[mirror]]\nconversation = '{conversation}'\nworkspace = '{work}'\nlaunch_epoch = {launch}\n\
         bridge_dir = '{bridge}'\n"
    )
}

#[test]
fn two_mirrors_of_one_process_never_take_the_same_session() {
    let world = World::new();
    let other = world.sink.create_conversation();
    let mut db = HermesDb::create(&world.db_path());
    for session in ["one", "two"] {
        db.session(session, Some(&world.workspace()));
        db.turn(session, "q", session);
    }
    let mirrors = [&world.conversation, &other].map(|conversation| mirror_of_workspace(&world, conversation));
    let (code, log) = world.run(&["--once"], &mirrors.concat()).wait();
    assert_eq!(code, Some(0), "{log}");
    check_apart(&world, &other);
}

#[test]
fn two_mirrors_launched_in_the_same_directory_never_take_the_same_session() {
    let world = World::new();
    let other = world.sink.create_conversation();
    let mut db = HermesDb::create(&world.db_path());
    for session in ["one", "two"] {
        db.session(session, Some(&world.workspace()));
        db.turn(session, "q", session);
    }
    let first = world.attach();
    expect(&world, &world.conversation, &lines(3, "q", "two"));
    let second = world.attach_as("b", &other, world.launch + 0.5);
    both(&world, &other);
    first.stop();
    second.stop();
    check_apart(&world, &other);
}

fn both(world: &World, other: &str) {
    let arrived = world.sink.wait_until(
        |state| [&world.conversation, other].iter().all(|id| shown(state.events(id)).len() >= 4),
        PATIENCE,
    );
    assert!(arrived, "{:?} {:?}", world.shown(), shown(&world.sink.events(other)));
}

fn check_apart(world: &World, other: &str) {
    let mut seen = [world.shown(), shown(&world.sink.events(other))];
    seen.sort();
    assert_eq!(seen, [lines(1, "q", "one"), lines(3, "q", "two")]);
}
