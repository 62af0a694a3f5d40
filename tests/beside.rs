//! What stands beside the transcript: titles, compactions under way, task lists, usage by model, and turns that no row
//! closes.

#![allow(clippy::unwrap_used, reason = "a helper that fails is to fail its test")]

mod support;

use support::fault::Fault;
use support::hermes_beside::Used;
use support::hermes_db::{HermesDb, Kept, Message, Summary, Version};
use support::mirror::{PATIENCE, World};
use support::shown::{shown, usages};

const FIRST: [&str; 4] = ["1 user: one", "running 1", "1 agent: first", "idle 1"];

fn then<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&FIRST, more].concat()
}

fn of_version(world: &World, version: Version) -> HermesDb {
    let mut db = HermesDb::create_as(&world.db_path(), version);
    db.session("s", Some(&world.workspace()));
    db
}

/// Waits until usage was told so often: behind the idle edge, and the last thing told of a turn.
fn wait_for_usage(world: &World, times: usize) {
    let enough = |state: &support::sink::State| usages(state.events(&world.conversation)).len() >= times;
    assert!(world.sink.wait_until(enough, PATIENCE), "{:?}", usages(&world.sink.events(&world.conversation)));
}

#[test]
fn a_title_is_told_when_hermes_gives_it_and_again_when_it_changes() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "one", "first");
    world.expect(&FIRST);
    db.name("s", "A name", "llm");
    world.expect(&then(&["title: A name"]));
    db.name("s", "Another", "user");
    world.expect(&then(&["title: A name", "title: Another"]));
    db.turn("s", "two", "second");
    let end = ["title: A name", "title: Another", "3 user: two", "running 3", "3 agent: second", "idle 3"];
    world.expect_all(mirror, &then(&end));
}

#[test]
fn a_title_that_was_told_is_not_told_again_after_a_restart() {
    let world = World::new();
    let mut db = world.hermes();
    db.name("s", "A name", "llm");
    db.turn("s", "one", "first");
    let mirror = world.attach();
    let told = then(&["title: A name"]);
    world.expect_all(mirror, &told);
    let mirror = world.attach();
    db.turn("s", "two", "second");
    let end = ["title: A name", "3 user: two", "running 3", "3 agent: second", "idle 3"];
    world.expect_all(mirror, &then(&end));
}

#[test]
fn a_title_that_is_only_derived_is_not_told() {
    let world = World::new();
    let mut db = of_version(&world, Version::V20);
    let mirror = world.attach();
    db.name("s", "one", "derived");
    db.turn("s", "one", "first");
    world.expect(&FIRST);
    db.name("s", "A name", "llm");
    world.expect_all(mirror, &then(&["title: A name"]));
}

#[test]
fn a_continuation_keeps_the_title_as_it_was() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    db.name("s", "A name", "llm");
    db.turn("s", "one", "first");
    world.expect(&then(&["title: A name"]));
    db.compact_by_fork("s", "child", Kept { head: 0, tail: 2 }, Summary::Row("sum"));
    db.turn("child", "two", "second");
    world.expect(&then(&[
        "title: A name",
        "compaction: sum",
        "6 user: two",
        "running 6",
        "6 agent: second",
        "idle 6",
    ]));
    db.name("child", "Another", "user");
    let end = [
        "title: A name",
        "compaction: sum",
        "6 user: two",
        "running 6",
        "6 agent: second",
        "idle 6",
        "title: Another",
    ];
    world.expect_all(mirror, &then(&end));
}

#[test]
fn a_compaction_is_shown_while_it_runs_and_completed_with_its_summary() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "one", "first");
    world.expect(&FIRST);
    db.lock("s", 300.0);
    world.expect(&then(&["compaction in_progress"]));
    db.compact_in_place("s", Kept { head: 0, tail: 2 }, Summary::Row("sum"));
    let end = ["compaction in_progress", "compaction: sum", "compaction completed"];
    world.expect(&then(&end));
    db.unlock("s");
    db.turn("s", "two", "second");
    let more = ["6 user: two", "running 6", "6 agent: second", "idle 6"];
    world.expect_all(mirror, &[then(&end), more.to_vec()].concat());
}

#[test]
fn a_compaction_that_comes_to_nothing_has_failed() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "one", "first");
    world.expect(&FIRST);
    db.lock("s", 300.0);
    world.expect(&then(&["compaction in_progress"]));
    db.unlock("s");
    world.expect_all(mirror, &then(&["compaction in_progress", "compaction failed"]));
}

#[test]
fn a_lock_that_has_run_out_is_no_compaction() {
    let world = World::new();
    world.configure("[detect]\npoll_ms = 50\nfallback_poll_ms = 200\nrelease_after_ms = 100\n");
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "one", "first");
    world.expect(&FIRST);
    db.lock("s", -1.0);
    db.session("other", None);
    db.lock("s", 1.0);
    world.expect(&then(&["compaction in_progress"]));
    // Nobody takes the lock away: whoever held it was killed.
    world.expect_all(mirror, &then(&["compaction in_progress", "compaction failed"]));
}

#[test]
fn a_fork_is_under_way_until_the_child_has_its_rows() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    db.turn("s", "one", "first");
    world.expect(&FIRST);
    db.lock("s", 300.0);
    world.expect(&then(&["compaction in_progress"]));
    db.compact_by_fork("s", "child", Kept { head: 0, tail: 2 }, Summary::Row("sum"));
    let end = ["compaction in_progress", "compaction: sum", "compaction completed"];
    world.expect(&then(&end));
    db.unlock("s");
    world.expect_all(mirror, &then(&end));
}

#[test]
fn a_compaction_amid_a_turn_makes_no_idle_edge() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    db.append_all(
        "s",
        &[Message::user("one"), Message::tools("", &[("c", "terminal", "{}")]), Message::result("c", "ok")],
    );
    let begun = ["1 user: one", "running 1", "1 call c terminal {}", "1 output c: ok"];
    world.expect(&begun);
    db.lock("s", 300.0);
    world.expect(&[&begun[..], &["compaction in_progress"]].concat());
    db.compact_in_place("s", Kept { head: 0, tail: 3 }, Summary::Row("sum"));
    let todos =
        "[Your active task list was preserved across context compression]\n- [>] 1. one (in_progress)";
    db.append("s", &Message::user(todos));
    db.append("s", &Message::answer("first"));
    db.unlock("s");
    let meta = format!("1 meta: {todos}");
    let end = [
        "compaction in_progress",
        "compaction: sum",
        "compaction completed",
        &meta,
        "1 agent: first",
        "idle 1",
    ];
    world.expect_all(mirror, &[&begun[..], &end].concat());
}

#[test]
fn a_task_list_follows_the_answer_of_its_tool() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    let list = r#"{"todos":[{"id":"1","content":"one","status":"completed"},{"id":"2","content":"two","status":"pending"},{"id":"3","content":"three","status":"cancelled"}]}"#;
    let answer = |call: &str| Message { tool_name: Some("todo".to_owned()), ..Message::result(call, list) };
    db.append_all(
        "s",
        &[
            Message::user("plan"),
            Message::tools("", &[("a", "todo", "{}")]),
            answer("a"),
            Message::tools("", &[("b", "todo", "{}")]),
            answer("b"),
            Message::answer("planned"),
        ],
    );
    let (a, b) = (format!("1 output a: {list}"), format!("1 output b: {list}"));
    let expected = [
        "1 user: plan",
        "running 1",
        "1 call a todo {}",
        &a,
        "todos: [x] one, [ ] two",
        "1 call b todo {}",
        &b,
        "1 agent: planned",
        "idle 1",
    ];
    world.expect_all(mirror, &expected);
}

#[test]
fn usage_counts_the_calls_beside_the_conversation_each_under_its_model() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    let main = |model, input| Used { model, task: "", input, output: 10, cost: 0.5 };
    db.used("s", &main("big", 100));
    db.turn("s", "one", "first");
    wait_for_usage(&world, 1);
    db.used("s", &Used { model: "small", task: "title_generation", input: 7, output: 1, cost: 0.25 });
    db.used("s", &main("big", 100));
    db.turn("s", "two", "second");
    wait_for_usage(&world, 3);
    db.used("s", &main("new", 50));
    db.turn("s", "three", "third");
    wait_for_usage(&world, 4);
    mirror.stop();
    let events = world.sink.events(&world.conversation);
    assert_eq!(usages(&events), ["100/10/0 big", "107/11/0 small", "207/21/0 big", "257/31/0 new"]);
    let costs: Vec<_> =
        events.iter().filter_map(|event| event["data"]["cumulative_cost_usd"].as_f64()).collect();
    assert_eq!(costs, [0.5, 0.75, 1.25, 1.75]);
    let models: Vec<_> = shown(&events).into_iter().filter(|line| line.starts_with("model")).collect();
    assert_eq!(models, ["model: new"]);
}

#[test]
fn an_interrupted_turn_is_said_to_be() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    let cut = r#"{"output": "[Command interrupted]", "exit_code": 130}"#;
    db.append_all(
        "s",
        &[
            Message::user("sleep"),
            Message::tools("", &[("c", "terminal", "{}")]),
            Message::result("c", cut),
            Message::answer("Operation interrupted.").unfinished(),
        ],
    );
    let output = format!("1 output c: {cut}");
    let expected = [
        "1 user: sleep",
        "running 1",
        "1 call c terminal {}",
        &output,
        "1 agent: Operation interrupted.",
        "interrupted 1",
        "idle 1",
    ];
    world.expect_all(mirror, &expected);
}

#[test]
fn f7_a_turn_amid_a_tool_is_settled_when_its_session_ends() {
    let world = World::new();
    world.configure("[turns]\nreassert_ms = 100\n");
    let mut db = world.hermes();
    let mirror = world.attach();
    db.append_all("s", &[Message::user("one"), Message::tools("", &[("c", "terminal", "{}")])]);
    let begun = ["1 user: one", "running 1", "1 call c terminal {}"];
    world.expect(&begun);
    db.end_session("s", "cli_close");
    let settled = [&begun[..], &["idle 1"]].concat();
    world.expect(&settled);
    // Running is not asserted again, and a restart does not call the turn running either.
    world.expect_all(mirror, &settled);
    let mirror = world.attach();
    mirror.wait_for_log("mirroring");
    db.reopen_session("s");
    // Another process was still at it.
    db.append_all("s", &[Message::result("c", "ok"), Message::answer("first")]);
    let end = ["running 1", "1 output c: ok", "1 agent: first", "idle 1"];
    world.expect_all(mirror, &[settled, end.to_vec()].concat());
}

#[test]
fn a_turn_that_was_open_when_the_mirror_came_is_settled_if_its_session_has_ended() {
    let world = World::new();
    let mut db = world.hermes();
    db.append("s", &Message::user("one"));
    db.end_session("s", "cli_close");
    let mirrors = format!("[[mirror]]\nconversation = '{}'\nsession = 's'\n", world.conversation);
    let (code, log) = world.run(&["--once"], &mirrors).wait();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(world.shown(), ["1 user: one", "running 1", "idle 1"]);
}

#[test]
fn a_call_is_paired_with_its_result_over_another_process_and_a_restart() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = world.attach();
    db.append_all(
        "s",
        &[Message::user("one"), Message::tools("", &[("a", "terminal", "{}"), ("b", "terminal", "{}")])],
    );
    db.append_all("s", &[Message::result("a", "ok"), Message::user("elsewhere")]);
    let begun = [
        "1 user: one",
        "running 1",
        "1 call a terminal {}",
        "1 call b terminal {}",
        "1 output a: ok",
        "4 user: elsewhere",
        "running 4",
    ];
    world.expect_all(mirror, &begun);
    let mirror = world.attach();
    mirror.wait_for_log("mirroring");
    db.append_all("s", &[Message::result("b", "ok"), Message::answer("done")]);
    // Running is told again at the start.
    let end = ["1 output b: ok", "4 agent: done", "idle 1", "idle 4"];
    world.expect_all(mirror, &[&begun[..], &end].concat());
}

#[test]
fn a_server_that_takes_no_notices_gets_every_item() {
    let world = World::new();
    world.sink.script(|request| {
        let kind = request.json()["type"].as_str().unwrap_or_default().to_owned();
        let item =
            ["external_conversation_item", "external_session_status", "compaction"].contains(&kind.as_str());
        if item || request.method != "POST" { Fault::None } else { Fault::Status(503) }
    });
    let mut db = world.hermes();
    let mirror = world.attach();
    db.name("s", "A name", "llm");
    db.lock("s", 300.0);
    db.turn("s", "one", "first");
    db.unlock("s");
    world.expect_all(mirror, &FIRST);
}
