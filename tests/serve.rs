//! The embedded server: what a mirror puts in is what is read back, once, and nobody else gets at it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is to fail its test")]

mod support;

#[allow(dead_code, reason = "each test binary uses its part")]
#[path = "support/request.rs"]
mod request;
#[path = "support/served.rs"]
mod served;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use served::{Served, refused};
use support::hermes_db::{Kept, Message, Summary};
use support::mirror::{Mirror, PATIENCE, World, write};

/// A stored item in a few words.
fn line(item: &Value) -> String {
    let text = |key: &str| item[key].as_str().unwrap_or_default();
    let said = item["content"][0]["text"].as_str().unwrap_or_default();
    match text("type") {
        "message" => format!("{}: {said}", text("role")),
        "function_call" => format!("call {} {} {}", text("call_id"), text("name"), text("arguments")),
        "function_call_output" => format!("output {}: {}", text("call_id"), text("output")),
        kind => format!("{kind}: {}", text("summary")),
    }
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_mirrored_session_is_held_item_by_item() {
    let world = World::new();
    let server = Served::start(&world.path("served.db"));
    let conversation = server.new_conversation();
    let mut db = world.hermes();
    let mirror = Mirror::spawn(world.attachment_to(&server.url(), "a", &conversation, world.launch));
    db.append("s", &Message::user("look"));
    let calls = [("c1", "terminal", r#"{"a": 1}"#), ("c2", "read_file", "{}")];
    db.append("s", &Message::tools("let me look", &calls).thinking("two files"));
    db.append("s", &Message::result("c1", "one"));
    db.append("s", &Message::result("c2", "two"));
    db.append("s", &Message::answer("done"));
    let path = format!("/v1/sessions/{conversation}");
    let answered = || server.items(&conversation).len() == 7 && server.get(&path)["status"] == "idle";
    wait_until("the first turn is shown", answered);
    db.compact_in_place("s", Kept { head: 1, tail: 1 }, Summary::Row("all of it"));
    db.turn("s", "and now", "bye");
    wait_until("the second turn is shown", || {
        server.items(&conversation).len() >= 10 && server.get(&path)["status"] == "idle"
    });
    mirror.stop();
    let expected = [
        "user: look",
        "assistant: let me look",
        r#"call c1 terminal {"a": 1}"#,
        "call c2 read_file {}",
        "output c1: one",
        "output c2: two",
        "assistant: done",
        "compaction: all of it",
        "user: and now",
        "assistant: bye",
    ];
    assert_eq!(server.items(&conversation).iter().map(line).collect::<Vec<_>>(), expected);
    let session = server.get(&path);
    assert_eq!(session["external_session_id"], "s");
    assert_eq!(session["preview"], "look");
    let entries = server.get(&format!("/page/entries/{conversation}"));
    let reasoning = |event: &&Value| event["type"] == "response.reasoning_text.delta";
    let thoughts: Vec<_> = entries["data"].as_array().unwrap().iter().filter(reasoning).collect();
    assert_eq!(thoughts.len(), 1);
    assert_eq!(thoughts[0]["delta"], "two files");
}

#[test]
fn a_source_makes_one_item_however_often_it_is_posted() {
    let directory = tempfile::tempdir().unwrap();
    let server = Served::start(&directory.path().join("c.db"));
    let (one, other) = (server.new_conversation(), server.new_conversation());
    let first = server.say(&one, "hello");
    assert_eq!(server.say(&one, "hello"), first);
    assert_ne!(server.say(&other, "hello"), first);
    assert_eq!((server.items(&one).len(), server.items(&other).len()), (1, 1));
    // Without a source there is nothing to know it by.
    let data = json!({"item_type": "message", "response_id": "t",
        "item_data": {"role": "user", "content": [{"type": "input_text", "text": "again"}]}});
    for _ in 0..2 {
        server.post(&one, "external_conversation_item", &data);
    }
    assert_eq!(server.items(&one).len(), 3);
}

#[test]
fn pages_of_items_run_both_ways_and_end() {
    let directory = tempfile::tempdir().unwrap();
    let server = Served::start(&directory.path().join("c.db"));
    let conversation = server.new_conversation();
    let ids: Vec<_> = (0..5).map(|n| server.say(&conversation, &n.to_string())).collect();
    let page = |query: &str| {
        let page = server.get(&format!("/v1/sessions/{conversation}/items?{query}"));
        let data = page["data"].as_array().unwrap();
        let texts = data.iter().map(|item| item["content"][0]["text"].as_str().unwrap().to_owned());
        (texts.collect::<Vec<_>>().concat(), page["has_more"] == true)
    };
    assert_eq!(page("limit=2"), ("01".to_owned(), true));
    assert_eq!(page(&format!("limit=3&after={}", ids[1])), ("234".to_owned(), false));
    assert_eq!(page("limit=2&order=desc"), ("43".to_owned(), true));
    assert_eq!(page(&format!("order=desc&after={}", ids[3])), ("210".to_owned(), false));
    assert_eq!(page(&format!("order=desc&before={}", ids[3])), ("4".to_owned(), false));
    assert_eq!(page(&format!("before={}", ids[2])), ("01".to_owned(), false));
    assert_eq!(page(&format!("after={}", ids[4])), (String::new(), false));
    let of_another = server.say(&server.new_conversation(), "x");
    for (query, status) in [
        (format!("after={of_another}"), 404),
        ("after=unknown".to_owned(), 404),
        ("limit=0".to_owned(), 400),
        ("limit=1001".to_owned(), 400),
        ("order=up".to_owned(), 400),
    ] {
        let path = format!("/v1/sessions/{conversation}/items?{query}");
        assert_eq!(server.call("GET", &path, None).0, status, "{query}");
    }
}

#[test]
fn a_server_that_is_killed_comes_back_with_all_that_it_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("deep/c.db");
    let server = Served::start(&data);
    let conversation = server.new_conversation();
    let path = format!("/v1/sessions/{conversation}");
    server.say(&conversation, "one");
    server.post(&conversation, "external_session_title", &json!({"title": "A name"}));
    server.post(
        &conversation,
        "external_session_usage",
        &json!({"cumulative_input_tokens": 7, "model": "m"}),
    );
    server.call("PATCH", &path, Some(&json!({"external_session_id": "hermes"})));
    server.status(&conversation, "running");
    let (items, session) = (server.items(&conversation), server.get(&path));
    server.kill();

    let server = Served::start(&data);
    assert_eq!(server.items(&conversation), items);
    assert_eq!(server.get(&path), session);
    assert_eq!(session["title"], "A name");
    assert_eq!(session["llm_model"], "m");
    assert_eq!(session["usage"]["cumulative_input_tokens"], 7);
    assert_eq!(session["external_session_id"], "hermes");
    assert_eq!((&session["status"], &session["active_response_id"]), (&json!("running"), &json!("t")));
    assert_eq!(server.say(&conversation, "one"), items[0]["id"], "a source is known after a restart, too");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn what_is_wrong_is_refused_in_the_words_of_the_api_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Served::start(&directory.path().join("c.db"));
    let conversation = server.new_conversation();
    let (path, nowhere) = (format!("/v1/sessions/{conversation}"), "/v1/sessions/conv_none");
    let before = server.get(&path);
    let item = json!({"type": "external_conversation_item", "data": {"item_type": "message"}});
    for (method, path, body, status) in [
        ("POST", "/v1/sessions".to_owned(), json!({"agent_id": "other"}), 400),
        ("POST", "/v1/sessions".to_owned(), json!([]), 400),
        ("POST", format!("{path}/events"), json!({"type": "external_nonsense", "data": {}}), 400),
        ("POST", format!("{path}/events"), item.clone(), 400),
        ("POST", format!("{path}/events"), json!("text"), 400),
        ("PATCH", path.clone(), json!({"title": 7}), 400),
        (
            "POST",
            format!("{nowhere}/events"),
            json!({"type": "external_session_title", "data": {"title": "t"}}),
            404,
        ),
        ("GET", nowhere.to_owned(), json!(null), 404),
        ("GET", format!("{nowhere}/items"), json!(null), 404),
        ("GET", format!("{nowhere}/stream"), json!(null), 404),
        ("PATCH", nowhere.to_owned(), json!({}), 404),
        ("GET", "/v2".to_owned(), json!(null), 404),
        ("DELETE", path.clone(), json!(null), 405),
    ] {
        let (answered, body) = server.call(method, &path, Some(&body));
        assert_eq!(answered, status, "{method} {path}: {body}");
        assert!(body["error"]["code"].is_string() && body["error"]["message"].is_string(), "{body}");
    }
    assert_eq!(server.get(&path), before);
    assert!(server.items(&conversation).is_empty());
}

/// Sends a head as it stands. Returns the status line.
fn raw(server: &Served, head: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_page_of_another_origin_or_another_name_for_this_address_gets_no_answer() {
    let directory = tempfile::tempdir().unwrap();
    let server = Served::start(&directory.path().join("c.db"));
    let port = server.address().port();
    let ask = |headers: &str| {
        raw(&server, &format!("GET /v1/sessions HTTP/1.1\r\n{headers}\r\nConnection: close\r\n\r\n"))
    };
    for right in [
        format!("Host: 127.0.0.1:{port}"),
        format!("Host: localhost:{port}"),
        format!("Host: localhost:{port}\r\nOrigin: http://localhost:{port}"),
    ] {
        assert_eq!(ask(&right), "HTTP/1.1 200 OK", "{right}");
    }
    for wrong in [
        format!("Host: evil.example:{port}"),
        "Host: evil.example".to_owned(),
        "Host: 127.0.0.1".to_owned(),
        format!("Host: 127.0.0.1.evil.example:{port}"),
        format!("Host: 127.0.0.1:{port}\r\nHost: evil.example"),
        format!("Host: 127.0.0.1:{port}\r\nOrigin: http://evil.example"),
        format!("Host: 127.0.0.1:{port}\r\nOrigin: null"),
    ] {
        assert_eq!(ask(&wrong), "HTTP/1.1 403 Forbidden", "{wrong}");
    }
    let body = r#"{"agent_id":"hermes-native-ui"}"#;
    let made = format!(
        "POST /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: http://evil.example\r\n\
         Content-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(raw(&server, &made), "HTTP/1.1 403 Forbidden");
    assert_eq!(server.get("/v1/sessions")["data"], json!([]));
}

#[test]
fn a_stream_that_comes_back_gets_what_it_missed_once_and_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("c.db");
    let server = Served::start(&data);
    let conversation = server.new_conversation();
    for n in 0..300 {
        server.say(&conversation, &n.to_string());
    }
    let texts = |events: &[Value]| {
        let texts = events.iter().filter_map(|event| event["data"]["data"]["content"][0]["text"].as_str());
        texts.map(str::to_owned).collect::<Vec<_>>()
    };
    let path = |seq: &Value| format!("/page/updates?conversation={conversation}&after={seq}");
    let all = server.stream(&path(&json!(0)), |events| texts(events).len() == 300);
    assert_eq!(texts(&all), (0..300).map(|n| n.to_string()).collect::<Vec<_>>());
    let seen = all.iter().filter(|event| event["seq"].is_i64()).nth(120).unwrap()["seq"].clone();
    server.kill();
    let server = Served::start(&data);
    server.say(&conversation, "new");
    let missed = server.stream(&path(&seen), |events| texts(events).last().is_some_and(|t| t == "new"));
    let expected = (121..300).map(|n| n.to_string()).chain(["new".to_owned()]);
    assert_eq!(texts(&missed), expected.collect::<Vec<_>>());
}

#[test]
fn a_stream_shows_a_turn_as_omnigents_own_does() {
    let directory = tempfile::tempdir().unwrap();
    let server = Served::start(&directory.path().join("c.db"));
    let conversation = server.new_conversation();
    server.say(&conversation, "before the stream");
    let mut step = 0;
    let kinds =
        |events: &[Value]| events.iter().map(|e| e["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let todos = json!({"todos": [{"content": "a", "status": "pending", "activeForm": "a"}]});
    let call = json!({"agent": "a", "name": "ls", "arguments": "{}", "call_id": "c"});
    let post: [&dyn Fn(); 7] = [
        &|| server.status(&conversation, "running"),
        &|| drop(server.say(&conversation, "hi")),
        &|| drop(server.item(&conversation, "call", "function_call", &call)),
        &|| drop(server.post(&conversation, "external_output_reasoning_delta", &json!({"delta": "hm"}))),
        &|| drop(server.post(&conversation, "external_session_todos", &todos)),
        &|| drop(server.post(&conversation, "external_compaction_status", &json!({"status": "in_progress"}))),
        &|| server.status(&conversation, "idle"),
    ];
    let expected = [
        "session.status",
        "session.input.consumed",
        "response.output_item.done",
        "response.reasoning_text.delta",
        "session.todos",
        "response.compaction.in_progress",
        "session.status",
    ];
    // Each is posted once the one before has been seen, so that none of them can be folded into the next.
    let start = ["session.heartbeat", "session.status", "session.title"];
    let events = server.stream(&format!("/v1/sessions/{conversation}/stream"), |events| {
        if events.len() == start.len() + step && step < post.len() {
            post[step]();
            step += 1;
        }
        events.len() == start.len() + expected.len()
    });
    assert_eq!(kinds(&events), [&start[..], &expected].concat());
    assert_eq!(events[3]["response_id"], "t");
    assert_eq!(events[4]["data"]["data"]["content"][0]["text"], "hi");
    assert_eq!(events[9]["response_id"], Value::Null);
}

#[test]
fn a_server_that_cannot_start_says_why_and_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("c.db");
    let server = Served::start(&data);
    let (code, said) = refused(server.address().port(), &directory.path().join("d.db"));
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("cannot listen on 127.0.0.1") && said.contains("help: another server is there"),
        "{said}"
    );
    let (code, said) = refused(0, &data);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("c.db is in the hands of process"), "{said}");
    let text = directory.path().join("notes.txt");
    write(&text, &"not a database. ".repeat(100));
    let (code, said) = refused(0, &text);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("notes.txt is no file of conversations") && said.contains("help: "), "{said}");
    let world = World::new();
    drop(world.hermes());
    let (_, said) = refused(0, &world.db_path());
    assert!(said.contains("state.db is no file of conversations"), "{said}");
}

#[test]
fn what_it_keeps_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("conversations.db");
    let server = Served::start(&data);
    server.new_conversation();
    for suffix in ["", "-wal", "-shm"] {
        let file = hermes_mirror::hermes::with_suffix(&data, suffix);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
}

#[test]
fn the_page_comes_from_this_server_alone_and_makes_no_markup() {
    let directory = tempfile::tempdir().unwrap();
    let server = Served::start(&directory.path().join("c.db"));
    let page = server.get("/");
    let page = page.as_str().unwrap();
    assert_eq!(server.get("/c/any").as_str(), Some(page));
    let parts: Vec<_> = page.split('"').filter(|part| part.starts_with("/page/")).collect();
    assert_eq!(parts, ["/page/style.css", "/page/main.js"]);
    let mut files = vec![page.to_owned()];
    files.extend(parts.iter().map(|part| server.get(part).as_str().unwrap().to_owned()));
    let imported = ["transcript", "tools", "text", "session"].map(|name| format!("/page/{name}.js"));
    files.extend(imported.iter().map(|part| server.get(part).as_str().unwrap().to_owned()));
    for file in files {
        for none in
            ["http:", "https:", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
        {
            assert!(!file.contains(none), "{none} in {}", &file[..80]);
        }
    }
    let head = raw_head(&server, "/");
    for header in [
        "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src data:;",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
    ] {
        assert!(head.contains(header), "{header} is not in\n{head}");
    }
}

fn raw_head(server: &Served, path: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split("\r\n\r\n").next().unwrap().to_ascii_lowercase()
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the mirror's state, while no mirror runs")]
fn a_conversation_that_a_mirror_makes_is_found_again_without_its_record() {
    let world = World::new();
    let server = Served::start(&world.path("served.db"));
    let mut db = world.hermes();
    let run = || {
        let mirror = "[[mirror]]\nconversation = 'new'\nworkspace = '{work}'\n";
        world.run_to(&server.url(), &["--once"], mirror).wait();
    };
    db.turn("s", "q", "a");
    run();
    for _ in 0..120 {
        server.new_conversation();
    }
    std::fs::remove_dir_all(world.path("state")).unwrap();
    db.turn("s", "q2", "a2");
    run();
    let shown = server.get("/v1/sessions?limit=1000");
    let mirrored = |one: &&Value| one["external_session_id"] == "s";
    let of_session: Vec<_> = shown["data"].as_array().unwrap().iter().filter(mirrored).collect();
    assert_eq!(of_session.len(), 1, "{shown}");
    let items = server.items(of_session[0]["id"].as_str().unwrap());
    assert_eq!(
        items.iter().map(line).collect::<Vec<_>>(),
        ["user: q", "assistant: a", "user: q2", "assistant: a2"]
    );
}
