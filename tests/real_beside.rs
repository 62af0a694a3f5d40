//! What stands beside the transcript, with nothing made up: Hermes's own `SessionDB` writes it, and the real Omnigent
//! server shows it on its stream.

#![allow(clippy::disallowed_methods, reason = "the logs and directories here are the tests' own")]
#![allow(clippy::expect_used, reason = "in a test's helpers too, what must hold is expected")]

#[path = "support/attach.rs"]
mod attach;
#[allow(dead_code, reason = "only its names are needed here")]
#[path = "support/conversation.rs"]
mod conversation;
#[path = "support/hermes.rs"]
mod hermes;
#[allow(dead_code, reason = "each test binary uses its part")]
#[path = "support/omnigent.rs"]
mod omnigent;
#[path = "support/peers.rs"]
mod peers;
#[path = "support/request.rs"]
mod request;

use std::time::{Duration, Instant};

use attach::Attach;
use hermes::HermesWriter;
use omnigent::{Omnigent, Stream};
use serde_json::{Value, json};

const SESSION: &str = "20261129_203427_dd03ca";

/// Only a failing test waits as long.
const PATIENCE: Duration = Duration::from_mins(1);

/// What the stream has shown of this, in words.
fn shown(stream: &Stream) -> Vec<String> {
    let line = |event: &Value| {
        let kind = event["type"].as_str().unwrap_or_default();
        Some(match kind {
            "session.title" => format!("title {}", event["title"].as_str()?),
            "session.model" => format!("model {}", event["model"].as_str()?),
            "session.usage" => format!("usage {}", event["total_cost_usd"]),
            "session.todos" => format!("todos {}", event["todos"].as_array()?.len()),
            "session.interrupted" => format!("interrupted {}", event["data"]["response_id"].as_str()?),
            "session.status" => format!("{} {}", event["status"].as_str()?, event["response_id"].as_str()?),
            _ => kind
                .strip_prefix("response.")?
                .strip_prefix("compaction.")
                .map(|state| format!("compaction {state}"))?,
        })
    };
    let mut lines: Vec<_> = stream.events().iter().filter_map(line).collect();
    // Running is asserted again and again.
    lines.dedup();
    lines
}

fn wait_for(stream: &Stream, attach: &mut Attach, line: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !shown(stream).iter().any(|shown| shown == line) {
        attach.must_run();
        assert!(Instant::now() < deadline, "never shown: {line}\n{:#?}\n{}", shown(stream), attach.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn count(writer: &mut HermesWriter, model: &str) {
    writer.call(&json!({
        "do": "update_token_counts", "session_id": SESSION, "model": model, "input_tokens": 900, "output_tokens": 15,
        "reasoning_tokens": 5, "cache_read_tokens": 100, "api_call_count": 1, "estimated_cost_usd": 0.5,
        "cost_status": "estimated", "billing_provider": "stub",
    }));
}

#[test]
fn a_real_server_shows_titles_compactions_task_lists_usage_models_and_interrupts() {
    let Some(peers) = peers::peers() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let (home, workspace) = (directory.path().join("home"), directory.path().join("work"));
    for made in [&home, &workspace] {
        std::fs::create_dir(made).expect("a directory");
    }
    let db = directory.path().join("hermes/state.db");
    let server = Omnigent::start(&peers.omnigent);
    let conversation = server.new_conversation();
    let stream = server.stream(&conversation);
    let mut attach = Attach::start(&server.base_url(), &conversation, &db, &workspace);
    let mut writer = HermesWriter::start(&peers.hermes_python, &home);
    writer.open(&db);
    writer.create_session(SESSION, &json!({"cwd": workspace}));

    count(&mut writer, "stub-model");
    writer.append(SESSION, &json!({"role": "user", "content": "plan"}));
    let call = json!([{"id": "t", "type": "function", "function": {"name": "todo", "arguments": "{}"}}]);
    writer.append(
        SESSION,
        &json!({"role": "assistant", "content": "", "tool_calls": call, "finish_reason": "tool_calls"}),
    );
    let list = r#"{"todos": [{"id": "1", "content": "one", "status": "in_progress"}, {"id": "2", "content": "two", "status": "cancelled"}]}"#;
    writer
        .append(SESSION, &json!({"role": "tool", "content": list, "tool_call_id": "t", "tool_name": "todo"}));
    writer.append(SESSION, &json!({"role": "assistant", "content": "planned", "finish_reason": "stop"}));
    wait_for(&stream, &mut attach, "usage 0.5");
    writer.call(&json!({"do": "record_auxiliary_usage", "session_id": SESSION, "task": "title_generation",
        "model": "small-model", "input_tokens": 50, "output_tokens": 5, "estimated_cost_usd": 0.25}));
    writer.call(&json!({"do": "set_auto_title_if_empty", "session_id": SESSION, "title": "A plan"}));
    wait_for(&stream, &mut attach, "title A plan");

    let lock = |does: &str| json!({"do": does, "session_id": SESSION, "holder": "pid=1:tid=1:nonce"});
    writer.call(&lock("try_acquire_compression_lock"));
    wait_for(&stream, &mut attach, "compaction in_progress");
    let summary = writer.framed("SUMMARY");
    writer.archive_and_compact(SESSION, &[json!({"role": "assistant", "content": summary})]);
    wait_for(&stream, &mut attach, "compaction completed");
    writer.call(&lock("release_compression_lock"));
    writer.call(&lock("try_acquire_compression_lock"));
    writer.call(&lock("release_compression_lock"));

    count(&mut writer, "other-model");
    let asked = writer.append(SESSION, &json!({"role": "user", "content": "go on"}));
    writer.append(SESSION, &json!({"role": "assistant", "content": "Operation interrupted."}));
    wait_for(&stream, &mut attach, "usage 1.25");
    let killed = writer.append(SESSION, &json!({"role": "user", "content": "killed amid this"}));
    wait_for(&stream, &mut attach, &format!("running hermes_turn_{killed}"));
    writer.end_session(SESSION, "cli_close");
    wait_for(&stream, &mut attach, &format!("idle hermes_turn_{killed}"));
    assert!(attach.stop().success(), "{}", attach.log());

    let mut lines = shown(&stream);
    // Taken and released at once, the second lock may go unseen.
    if let Some(failed) = lines.iter().position(|line| line == "compaction failed") {
        assert_eq!(lines.drain(failed - 1..=failed).next().as_deref(), Some("compaction in_progress"));
    }
    let turn = |word: &str, row: i64| format!("{word} hermes_turn_{row}");
    let expected = [
        turn("running", 1),
        "todos 1".to_owned(),
        turn("idle", 1),
        "usage 0.5".to_owned(),
        "title A plan".to_owned(),
        "compaction in_progress".to_owned(),
        "compaction completed".to_owned(),
        turn("running", asked),
        turn("interrupted", asked),
        turn("idle", asked),
        "model other-model".to_owned(),
        "usage 0.75".to_owned(),
        "usage 1.25".to_owned(),
        turn("running", killed),
        turn("idle", killed),
    ];
    assert_eq!(lines, expected, "{}", attach.log());
    assert_eq!(server.conversation(&conversation)["title"], "A plan");
}
