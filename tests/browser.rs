//! The page in a real browser.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is to fail its test")]

#[path = "support/browser.rs"]
mod browser;
#[allow(dead_code, reason = "each test binary uses its part")]
#[path = "support/request.rs"]
mod request;
#[path = "support/served.rs"]
mod served;

use browser::Browser;
use serde_json::{Value, json};
use served::Served;

/// How many nodes of the transcript match.
fn count(selector: &str) -> String {
    format!("document.querySelectorAll('#transcript {selector}').length")
}

/// The text of each message of the person, joined.
const SAID: &str = "[...document.querySelectorAll('#transcript .user')].map(m => m.textContent).join(' ')";

#[test]
fn messages_appear_without_a_reload_and_a_tool_card_goes_live_and_settles() {
    let Some(browser) = Browser::open() else { return };
    let directory = tempfile::tempdir().unwrap();
    let server = Served::start(&directory.path().join("c.db"));
    let conversation = server.new_conversation();
    browser.go(&format!("{}/c/{conversation}", server.url()));
    browser.run("window.loaded = true");
    browser.wait_for("document.getElementById('status').textContent", &json!("Idle"));

    server.status(&conversation, "running");
    server.say(&conversation, "hello");
    browser.wait_for(SAID, &json!("hello"));
    browser.wait_for("document.getElementById('status').textContent", &json!("Running"));
    browser.wait_for("document.title", &json!("hello · hermes-mirror"));
    server.post(&conversation, "external_output_reasoning_delta", &json!({"delta": "let me see"}));
    browser.wait_for("document.querySelector('#transcript .aside')?.open", &json!(false));
    let call = |id: &str| json!({"agent": "a", "name": "terminal", "arguments": r#"{"command":"ls"}"#, "call_id": id});
    server.item(&conversation, "call 1", "function_call", &call("c1"));
    server.item(&conversation, "call 2", "function_call", &call("c2"));
    browser.wait_for(&count(".card.live .spinner"), &json!(2));
    browser.wait_for(
        "/^[0-9.]+ s$/.test(document.querySelector('.card.live .time')?.textContent)",
        &json!(true),
    );
    server.item(
        &conversation,
        "output 1",
        "function_call_output",
        &json!({"call_id": "c1", "output": "a.txt"}),
    );
    browser.wait_for(&count(".card.live"), &json!(1));
    browser.wait_for(&count(".card:not(.live) .spinner"), &json!(0));
    browser
        .wait_for("document.querySelector('.card:not(.live) pre:last-child')?.textContent", &json!("a.txt"));
    // What never gets its output is live no longer than its turn.
    server.status(&conversation, "idle");
    browser.wait_for(&count(".card.live"), &json!(0));
    browser.wait_for(&count(".card.lost"), &json!(1));

    let summary = json!({"summary": "what was", "last_item_id": "x", "token_count": 1});
    server.post(&conversation, "compaction", &summary);
    browser.wait_for(&count(".boundary"), &json!(1));
    server.post(&conversation, "external_session_title", &json!({"title": "A name"}));
    browser.wait_for("document.getElementById('title').textContent", &json!("A name"));
    browser.wait_for("document.querySelector('#list a .name')?.textContent", &json!("A name"));
    let usage = json!({"cumulative_input_tokens": 12_345, "cumulative_output_tokens": 678, "cumulative_cost_usd": 0.5,
        "model": "m"});
    server.post(&conversation, "external_session_usage", &usage);
    browser.wait_for(
        "document.getElementById('about').textContent",
        &json!("m · 12k tokens in · 678 out · $0.50"),
    );
    server.post(
        &conversation,
        "external_session_status",
        &json!({"status": "waiting", "blocked_on": "approval"}),
    );
    browser.wait_for("document.getElementById('status').textContent", &json!("Waiting: approval"));
    server.post(&conversation, "external_session_status", &json!({"status": "failed"}));
    browser.wait_for("document.getElementById('status').textContent", &json!("Failed"));
    assert_eq!(browser.run("return window.loaded"), json!(true), "the page was loaded anew");

    // A reload shows all of it again.
    browser.reload();
    browser.wait_for(&count("> *"), &json!(5));
    browser.wait_for("document.getElementById('title').textContent", &json!("A name"));
    assert_eq!(browser.log(), json!([]));
}

#[test]
fn a_page_that_outlives_its_server_shows_what_it_missed_once() {
    let Some(browser) = Browser::open() else { return };
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("c.db");
    let server = Served::start(&data);
    let (conversation, port) = (server.new_conversation(), server.address().port());
    server.say(&conversation, "one");
    browser.go(&format!("{}/c/{conversation}", server.url()));
    browser.wait_for(SAID, &json!("one"));
    server.kill();
    browser.wait_for("document.getElementById('connection').hidden", &json!(false));
    let server = Served::start_on(port, &data);
    server.say(&conversation, "two");
    browser.wait_for("document.getElementById('connection').hidden", &json!(true));
    server.say(&conversation, "three");
    browser.wait_for(SAID, &json!("one two three"));
}

#[test]
fn conversations_are_listed_as_they_appear_and_chosen_by_keyboard() {
    let Some(browser) = Browser::open() else { return };
    let directory = tempfile::tempdir().unwrap();
    let server = Served::start(&directory.path().join("c.db"));
    browser.go(&server.url());
    browser.wait_for("document.getElementById('empty').hidden", &json!(false));
    let first = server.new_conversation();
    server.say(&first, "the first");
    // The page at the root shows the conversation that changed last.
    browser.wait_for("location.pathname", &json!(format!("/c/{first}")));
    browser.wait_for(SAID, &json!("the first"));
    let second = server.new_conversation();
    server.say(&second, "the second");
    browser.wait_for("document.querySelectorAll('#list a').length", &json!(2));
    browser.wait_for(
        "document.querySelector('#list a:not([aria-current]) .name')?.textContent",
        &json!("the second"),
    );
    browser.run("document.querySelector('#list a:not([aria-current])').focus()");
    browser.press("\u{e007}");
    browser.wait_for(SAID, &json!("the second"));
    browser.wait_for("location.pathname", &json!(format!("/c/{second}")));
    browser.run("history.back()");
    browser.wait_for(SAID, &json!("the first"));
}

#[test]
fn five_thousand_messages_stay_usable() {
    let Some(browser) = Browser::open() else { return };
    let directory = tempfile::tempdir().unwrap();
    let server = Served::start(&directory.path().join("c.db"));
    let conversation = server.new_conversation();
    browser.go(&format!("{}/c/{conversation}", server.url()));
    browser.wait_for("document.getElementById('status').textContent", &json!("Idle"));
    for n in 1..=5_000 {
        server.say(&conversation, &format!("message-{n}"));
    }
    // Live, each once and in order, and the page is at the end.
    browser.wait_for(&count("> *"), &json!(5_000));
    let numbers =
        "[...document.querySelectorAll('#transcript .user')].map(m => +m.textContent.split('-')[1])";
    let in_order = format!("{numbers}.every((n, i) => n === i + 1)");
    assert_eq!(browser.run(&format!("return {in_order}")), json!(true));
    let end = "scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 100";
    browser.wait_for(end, &json!(true));

    // Anew: the newest alone, and older ones as they are asked for.
    browser.reload();
    browser.wait_for(&count("> *"), &json!(200));
    browser.wait_for(end, &json!(true));
    browser.run("document.getElementById('earlier').click()");
    browser.wait_for(&count("> *"), &json!(400));
    assert_eq!(browser.run(&format!("return {numbers}.every((n, i) => n === 4601 + i)")), json!(true));
    // Who reads further up stays there, and is told that there is more.
    let up = "return new Promise(done => { scroller.addEventListener('scroll', () => done(true), { once: true }); \
              scroller.scrollTop = scroller.scrollHeight / 2; })";
    browser.run(up);
    server.say(&conversation, "message-5001");
    browser.wait_for(&format!("{numbers}.at(-1)"), &json!(5_001));
    browser.wait_for("document.getElementById('latest').hidden", &json!(false));
    browser.run("document.getElementById('latest').click()");
    browser.wait_for(end, &json!(true));
}

#[test]
fn no_script_from_a_transcript_runs() {
    let Some(browser) = Browser::open() else { return };
    let directory = tempfile::tempdir().unwrap();
    let server = Served::start(&directory.path().join("c.db"));
    let conversation = server.new_conversation();
    let evil = "<script>window.ran=1</script><img src=x onerror='window.ran=1'><svg onload=window.ran=1> \
                ```\n<script>window.ran=1</script>\n``` `<b onclick=1>` **<i>** [a](javascript:window.ran=1)";
    let line = evil.replace('\n', " ");
    server.post(&conversation, "external_session_title", &json!({"title": line}));
    server.post(&conversation, "external_model_change", &json!({"model": evil}));
    let todo = json!({"todos": [{"content": evil, "status": "in_progress", "activeForm": evil}]});
    server.post(&conversation, "external_session_todos", &todo);
    server.post(&conversation, "external_session_status", &json!({"status": "waiting", "blocked_on": evil}));
    let images = [
        "javascript:window.ran=1",
        "data:image/svg+xml,<svg onload=window.ran=1>",
        "data:text/html,<script>parent.ran=1</script>",
        "http://127.0.0.1:1/x.png\" onerror=\"window.ran=1",
    ];
    let mut content = vec![json!({"type": "input_text", "text": evil})];
    content.extend(images.map(|url| json!({"type": "input_image", "image_url": url})));
    server.item(&conversation, "1", "message", &json!({"role": "user", "content": content}));
    let meta = json!({"role": "user", "is_meta": true, "content": [{"type": "input_text", "text": evil}]});
    server.item(&conversation, "2", "message", &meta);
    let said =
        json!({"role": "assistant", "agent": evil, "content": [{"type": "output_text", "text": evil}]});
    server.item(&conversation, "3", "message", &said);
    let call =
        json!({"agent": evil, "name": evil, "arguments": json!({"a": evil}).to_string(), "call_id": evil});
    server.item(&conversation, "4", "function_call", &call);
    server.item(&conversation, "5", "function_call_output", &json!({"call_id": evil, "output": evil}));
    server.post(&conversation, "external_output_reasoning_delta", &json!({"delta": evil}));
    let summary = json!({"summary": evil, "last_item_id": evil, "token_count": 1});
    server.post(&conversation, "compaction", &summary);

    browser.go(&format!("{}/c/{conversation}", server.url()));
    browser.wait_for(&count("> *"), &json!(6));
    browser.wait_for("document.querySelectorAll('#list a').length", &json!(1));
    browser.wait_for("document.getElementById('tasks').hidden", &json!(false));
    browser.run("document.querySelectorAll('details').forEach(d => { d.open = true; })");
    // What was written is there, as text.
    browser.wait_for("document.querySelector('#transcript .user .text')?.textContent", &json!(evil));
    let ours = "document.querySelectorAll('script').length";
    assert_eq!(browser.run(&format!("return {ours}")), json!(1));
    for foreign in
        ["svg", "img", "iframe", "b", "i", "[onerror]", "[onload]", "[onclick]", "a:not(#list a):not(.skip)"]
    {
        let found = browser.run(&format!("return document.querySelectorAll('{foreign}').length"));
        assert_eq!(found, json!(0), "{foreign}");
    }
    assert_eq!(browser.run("return window.ran === undefined"), json!(true));
    // Should markup ever slip in, the browser would not run it either.
    let attempt = "try { document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=window.ran=1>'); return 'in' } \
                   catch (error) { return error.name }";
    assert_eq!(browser.run(attempt), json!("TypeError"));
    let script = "const s = document.createElement('script'); try { s.textContent = 'window.ran = 1'; \
                  document.body.append(s); } catch {} return window.ran === undefined";
    assert_eq!(browser.run(script), json!(true));
}

#[test]
fn a_narrow_page_hides_the_list_behind_a_button_and_never_scrolls_sideways() {
    let Some(browser) = Browser::open() else { return };
    let directory = tempfile::tempdir().unwrap();
    let server = Served::start(&directory.path().join("c.db"));
    let conversation = server.new_conversation();
    server.say(&conversation, &"long".repeat(60));
    let code = format!("```\n{}\n```", "wide ".repeat(200));
    let said = json!({"role": "assistant", "agent": "a", "content": [{"type": "output_text", "text": code}]});
    server.item(&conversation, "code", "message", &said);
    browser.go(&format!("{}/c/{conversation}", server.url()));
    browser.narrow();
    browser.wait_for(&count("> *"), &json!(2));
    browser.wait_for("document.documentElement.scrollWidth <= innerWidth", &json!(true));
    browser.wait_for("scroller.scrollWidth <= scroller.clientWidth", &json!(true));
    let list = "document.getElementById('conversations').checkVisibility()";
    browser.wait_for(list, &Value::from(false));
    browser.run("document.getElementById('menu').focus()");
    browser.press("\u{e007}");
    browser.wait_for(list, &json!(true));
    browser.press("\u{e00c}");
    browser.wait_for(list, &json!(false));
}
