//! The whole way, with nothing made up: Hermes's own `SessionDB` writes, the program mirrors, the real Omnigent server receives.
//!
//! What the server then holds is compared with what the script says a person saw, exactly. `scripts/peers` installs the two.

#![allow(clippy::disallowed_methods, reason = "the logs and directories here are the tests' own")]
#![allow(clippy::expect_used, reason = "in a test's helpers too, what must hold is expected")]

#[path = "support/attach.rs"]
mod attach;
#[path = "support/conversation.rs"]
mod conversation;
#[path = "support/hermes.rs"]
mod hermes;
#[path = "support/omnigent.rs"]
mod omnigent;
#[path = "support/peers.rs"]
mod peers;
#[path = "support/request.rs"]
mod request;
mod support;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use attach::Attach;
use conversation::{Conversation, Seen, essence};
use hermes::HermesWriter;
use omnigent::{Omnigent, Stream};
use serde_json::{Value, json};
use support::mirror::World;
use support::sink::Sink;
use tempfile::TempDir;

const SESSION: &str = "20261129_203427_dd03ca";
const CHILD: &str = "20261129_203455_ed649c";
const BACKGROUND: &str = "bg_203430_1f1fc7";
const SUB_AGENT: &str = "20261129_203431_5ab0a9";

const PNG: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg==";

/// How long the mirror may take for what it usually does in seconds; only a failing test waits as long.
const PATIENCE: Duration = Duration::from_mins(2);

#[test]
fn a_whole_conversation_arrives_exactly_as_a_person_saw_it() {
    let Some(peers) = peers::peers() else { return };
    let place = Place::new();
    let server = Omnigent::start(&peers.omnigent);
    let conversation = server.new_conversation();
    let stream = server.stream(&conversation);
    let mut attach = Attach::start(&server.base_url(), &conversation, &place.db(), &place.workspace());

    let mut writer = HermesWriter::start(&peers.hermes_python, &place.home());
    writer.open(&place.db());
    writer
        .create_session(SESSION, &json!({"cwd": place.workspace(), "model_config": {"max_iterations": 90}}));
    writer.create_session(
        SUB_AGENT,
        &json!({"source": "subagent", "parent_session_id": SESSION, "model_config": {"_delegate_from": SESSION}}),
    );
    let mut script = Conversation::new(&mut writer, SESSION);
    talk(&mut script, &place.workspace());
    let (rows, seen) = script.end();
    assert!(rows >= 200, "the script wrote {rows} rows");

    wait_until(&mut attach, || {
        server.items(&conversation).len() >= seen.items.len() && settled(&stream, &seen)
    });
    let status = attach.stop();
    assert!(status.success(), "{status}\n{}", attach.log());

    let items = server.items(&conversation);
    assert_same(&seen.items, &items.iter().map(essence).collect::<Vec<_>>(), &attach);
    assert_boundaries(&items);
    assert_eq!(edges(&stream, &seen), seen.edges, "status edges\n{}", attach.log());
    assert_eq!(reasoning(&stream), seen.reasoning, "reasoning");
    let external = &server.conversation(&conversation)["external_session_id"];
    assert!(external == SESSION || external == CHILD, "external_session_id: {external}");
}

#[test]
fn a_conversation_that_is_made_on_the_real_server_is_made_once() {
    let Some(peers) = peers::peers() else { return };
    let world = World::new();
    let server = Omnigent::start(&peers.omnigent);
    let mut db = world.hermes();
    let run = || {
        let mirror = "[[mirror]]\nconversation = 'new'\nworkspace = '{work}'\n";
        let (code, log) = world.run_to(&server.base_url(), &["--once"], mirror).wait();
        assert_eq!(code, Some(0), "{log}");
    };
    db.turn("s", "q", "a");
    run();
    std::fs::remove_dir_all(world.path("state")).expect("the mirror's state");
    db.turn("s", "q2", "a2");
    run();
    let made = server.call("GET", "/v1/sessions", None);
    let made = made["data"].as_array().expect("conversations");
    assert_eq!(made.len(), 1, "{made:?}");
    assert_eq!(server.items(made[0]["id"].as_str().expect("an id")).len(), 4);
}

#[test]
fn no_row_is_lost_when_the_mirror_starts_before_the_database() {
    const TIMES: usize = 100;
    const ROWS: usize = 100;
    let Some(peers) = peers::peers() else { return };
    let sink = Sink::start();
    let place = Place::new();
    let mut writer = HermesWriter::start(&peers.hermes_python, &place.home());
    for time in 0..TIMES {
        let conversation = sink.create_conversation();
        let db = place.path(&format!("hermes {time}/state.db"));
        let mut attach = Attach::start(&sink.url(), &conversation, &db, &place.workspace());
        writer.open(&db);
        writer.create_session(SESSION, &json!({"cwd": place.workspace()}));
        let ids = writer.burst(SESSION, ROWS, "row");

        let all = sink.wait_until(|state| state.items(&conversation).len() >= ROWS, PATIENCE);
        assert!(all, "time {time}: {} of {ROWS} rows\n{}", sink.items(&conversation).len(), attach.log());
        let status = attach.stop();
        assert!(status.success(), "time {time}: {status}\n{}", attach.log());
        let shown: Vec<_> = sink.items(&conversation).iter().map(essence).collect();
        assert_same(&burst_as_shown(&ids), &shown, &attach);
    }
}

/// About 200 rows of everything that a terminal stores.
fn talk(script: &mut Conversation, workspace: &Path) {
    for n in 0..14 {
        script.user(&format!("question {n}"));
        script.answer(&format!("Answer {n}, with *some* `code` and an umlaut: ä."), Some("stop"));
    }
    for n in 0..6 {
        parallel_tools(script, &format!("first {n}"));
    }
    for n in 0..4 {
        script.user(&format!("think about {n}"));
        script.answer_after_thinking(
            &format!("Thought about {n}."),
            Some("stop"),
            Some(&format!("Let me see: {n}…")),
        );
    }
    images(script);
    empty_endings(script);
    elsewhere(script, workspace);
    not_the_persons_words(script);
    interrupted_turns(script);

    plain(script, "before the compaction", 4);
    script.compact_in_place(2, 7, "SUMMARY OF what went before.\n\n- one\n- two");
    plain(script, "after the compaction", 6);
    compaction_within_a_turn(script);
    for n in 0..3 {
        parallel_tools(script, &format!("second {n}"));
    }
    plain(script, "before the fork", 4);
    script.compact_by_fork(CHILD, 1, 6, "SUMMARY OF all until the fork.");
    plain(script, "after the fork", 6);
    // The same words as before, and not a copy: the person typed them again.
    script.user("before the fork 3");
    script.answer("Answer: before the fork 3", Some("stop"));
    parallel_tools(script, "last");
}

fn plain(script: &mut Conversation, tag: &str, turns: usize) {
    for n in 0..turns {
        script.user(&format!("{tag} {n}"));
        script.answer(&format!("Answer: {tag} {n}"), Some("stop"));
    }
}

fn parallel_tools(script: &mut Conversation, tag: &str) {
    script.user(&format!("look at three files, {tag}"));
    let calls = script.calls(
        "I will read them.",
        &[
            ("read_file", r#"{"path": "a.txt"}"#),
            ("read_file", r#"{"path": "b.txt"}"#),
            ("terminal", r#"{"command": "ls | wc -l"}"#),
        ],
    );
    for (n, call) in calls.iter().enumerate() {
        let tool = if n == 2 { "terminal" } else { "read_file" };
        script.result(call, tool, &format!(r#"{{"content": "1|{tag} {n}\n2|", "total_lines": 1}}"#));
    }
    script.answer(&format!("All three read, {tag}."), Some("stop"));
}

fn images(script: &mut Conversation) {
    for n in 0..3 {
        let text = format!("what is in picture {n}?");
        let stored =
            json!([{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": PNG}}]);
        let shown =
            [json!({"type": "input_text", "text": text}), json!({"type": "input_image", "image_url": PNG})];
        script.user_shown(&stored, &shown, false);
        script.answer(&format!("A dot, {n}."), Some("stop"));
    }
}

/// Turns whose last row holds no text: nothing is shown of it, and the turn is over all the same.
fn empty_endings(script: &mut Conversation) {
    for n in 0..3 {
        script.user(&format!("do {n} and say nothing"));
        let calls = script.calls("", &[("terminal", r#"{"command": "true"}"#)]);
        script.result(&calls[0], "terminal", r#"{"output": "", "exit_code": 0}"#);
        script.answer("", Some("stop"));
    }
}

/// Other sessions of the same database, between the rows of a turn.
fn elsewhere(script: &mut Conversation, workspace: &Path) {
    script.user("start something in the background");
    script.background(BACKGROUND, workspace);
    script.elsewhere(BACKGROUND, "what is this");
    let calls = script.calls("", &[("delegate_task", r#"{"goal": "look"}"#)]);
    script.elsewhere(SUB_AGENT, "look");
    script.result(&calls[0], "delegate_task", "started");
    script.elsewhere(SUB_AGENT, "look again");
    script.answer("It runs.", Some("stop"));
}

/// Rows in the user's role that the person did not type as they stand.
fn not_the_persons_words(script: &mut Conversation) {
    let goal = "[Continuing toward your standing goal]\nGoal: finish the demo\n\nGo on.";
    script.user_shown(&json!(goal), &[json!({"type": "input_text", "text": goal})], true);
    script.answer("Going on.", Some("stop"));

    let skill = "[IMPORTANT: The user has invoked the \"myskill\" skill, indicating they want it.]\n\n# My skill\nDo it.";
    script.user_shown(&json!(skill), &[json!({"type": "input_text", "text": "/myskill"})], false);
    script.answer("Did it.", Some("stop"));

    let attached = "see this\n\n[Attached: /tmp/bridge/uploads/x.txt]";
    script.user_shown(&json!(attached), &[json!({"type": "input_text", "text": "see this"})], false);
    script.answer("Seen.", Some("stop"));
}

fn interrupted_turns(script: &mut Conversation) {
    script.user("write a long poem");
    script.answer("Once upon a", None);

    script.user("sleep a while");
    let calls = script.calls("", &[("terminal", r#"{"command": "sleep 99"}"#)]);
    script.result(&calls[0], "terminal", r#"{"output":"[Command interrupted]","exit_code":130}"#);
    script.answer("Operation interrupted.", None);

    // Interrupted before the first token: no row follows, and the next turn cuts this one off.
    script.user("never mind");
    script.user("go on");
    script.answer("Gone on.", Some("stop"));
}

/// The running turn's own rows are written again, and it goes on under the id it began with.
fn compaction_within_a_turn(script: &mut Conversation) {
    script.user("read two long files");
    let calls = script.calls("", &[("read_file", r#"{"path": "long-1.txt"}"#)]);
    script.result(&calls[0], "read_file", "a long text");
    script.compact_in_place(2, 5, "SUMMARY OF the middle.");
    let calls = script.calls("Now the second.", &[("read_file", r#"{"path": "long-2.txt"}"#)]);
    script.result(&calls[0], "read_file", "another long text");
    script.answer("Both read.", Some("stop"));
}

/// What a burst of rows with these ids must show.
fn burst_as_shown(ids: &[i64]) -> Vec<Value> {
    let message = |n: usize, role, part, opener: i64| {
        json!({"type": "message", "role": role, "response_id": format!("hermes_turn_{opener}"),
               "content": [{"type": part, "text": format!("row {n}")}]})
    };
    let mut shown = Vec::new();
    for (n, id) in ids.iter().enumerate() {
        if n % 2 == 0 {
            shown.push(message(n, "user", "input_text", *id));
        } else {
            let mut answer = message(n, "assistant", "output_text", ids[n - 1]);
            answer["model"] = json!(conversation::AGENT);
            shown.push(answer);
        }
    }
    shown
}

/// Directories of one test's own.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(TempDir::new().expect("a directory"));
        std::fs::create_dir(place.home()).expect("a HOME");
        std::fs::create_dir(place.workspace()).expect("a workspace");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn home(&self) -> PathBuf {
        self.path("home")
    }

    fn workspace(&self) -> PathBuf {
        self.path("workspace")
    }

    /// Neither it nor its directory is there until Hermes makes them.
    fn db(&self) -> PathBuf {
        self.path("hermes/state.db")
    }
}

/// Waits for `done`, as long as the mirror runs and patience lasts; what is amiss then, the caller's comparison says.
fn wait_until(attach: &mut Attach, done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() && Instant::now() < deadline {
        attach.must_run();
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Compares item by item, so that a failure names the first that differs and not two walls of text.
fn assert_same(expected: &[Value], found: &[Value], attach: &Attach) {
    let common = std::iter::zip(expected, found).take_while(|(e, f)| e == f).count();
    let differs = expected.len() != common || found.len() != common;
    let none = Value::Null;
    assert!(
        !differs,
        "{} items expected, {} found; number {common} differs.\nexpected: {:#}\nfound: {:#}\nlog:\n{}",
        expected.len(),
        found.len(),
        expected.get(common).unwrap_or(&none),
        found.get(common).unwrap_or(&none),
        attach.log()
    );
}

/// Each compaction names the item before it as the last that it covers.
fn assert_boundaries(items: &[Value]) {
    for pair in items.windows(2).filter(|pair| pair[1]["type"] == "compaction") {
        assert_eq!(pair[1]["last_item_id"], pair[0]["id"], "the boundary names the item before it");
    }
}

/// The status edges that the stream carried. `running` asserted again is no new edge; a turn that the next one cut off
/// may be settled or not.
fn edges(stream: &Stream, seen: &Seen) -> Vec<(String, String)> {
    let mut edges: Vec<_> = stream
        .events()
        .iter()
        .filter(|e| e["type"] == "session.status")
        .map(|e| {
            (
                e["status"].as_str().unwrap_or_default().to_owned(),
                e["response_id"].as_str().unwrap_or_default().to_owned(),
            )
        })
        .collect();
    edges.dedup();
    edges.retain(|(status, turn)| status == "running" || !seen.cut_off.contains(turn));
    edges
}

/// Whether the last edge expected has come.
fn settled(stream: &Stream, seen: &Seen) -> bool {
    edges(stream, seen).last() == seen.edges.last()
}

/// The pieces of reasoning that the stream carried.
fn reasoning(stream: &Stream) -> Vec<String> {
    let events = stream.events();
    let deltas = events.iter().filter(|e| e["type"] == "response.reasoning_text.delta");
    deltas.map(|e| e["delta"].as_str().unwrap_or_default().to_owned()).collect()
}
