//! The client against a server that fails in every way a server can: which fault comes out of each.
#![allow(clippy::expect_used, reason = "a helper that fails is to fail its test")]
#![allow(clippy::disallowed_methods, reason = "files of the tests' own")]

mod support;

use std::time::Duration;

use bytes::Bytes;
use hermes_mirror::config;
use hermes_mirror::event::{Compaction, Item, Post, Usage};
use hermes_mirror::ids::{ConversationId, HermesSessionId, ItemId, MessageId, ResponseId};
use hermes_mirror::omnigent::{Accepted, Client, FaultKind, Order, body};
use hermes_mirror::retry::{Verdict, verdict};
use serde_json::json;
use support::fault::Fault;
use support::sink::Sink;

/// A server, a conversation on it, and a client with little patience.
struct World {
    sink: Sink,
    client: Client,
    conversation: ConversationId,
}

impl World {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut config::Deliver)) -> Self {
        let sink = Sink::start();
        let conversation = ConversationId::new(sink.create_conversation());
        let mut deliver = config::Deliver { base_url: sink.url(), ..config::Deliver::default() };
        change(&mut deliver);
        let client = Client::new(&deliver, Box::new(|_| Some("s3cret".to_owned()))).expect("a client");
        Self { sink, client, conversation }
    }

    async fn post(&self, post: &Post) -> Result<Accepted, hermes_mirror::omnigent::Fault> {
        let last = self.client.last_item(&self.conversation).await?;
        let body = body::event(post, "hermes", last.as_ref()).expect("a body");
        self.client.post_event(&self.conversation, body).await
    }

    async fn say(&self, text: &str) -> Result<Accepted, hermes_mirror::omnigent::Fault> {
        let body = body::event(&said(text), "hermes", None).expect("a body");
        self.client.post_event(&self.conversation, body).await
    }

    fn stored(&self) -> usize {
        self.sink.items(self.conversation.as_str()).len()
    }
}

fn turn() -> ResponseId {
    ResponseId::for_turn(MessageId::new(1))
}

fn item(item: Item) -> Post {
    Post::Item { item, turn: turn(), row: MessageId::new(7), place: 1 }
}

fn said(text: &str) -> Post {
    item(Item::Assistant { text: text.to_owned() })
}

/// Posts once against a fault and checks what comes out, what was stored, and that the next post goes through.
async fn check(world: &World, fault: Fault, kind: FaultKind, todo: Verdict, stored: usize) {
    let before = world.stored();
    world.sink.next_posts([fault.clone()]);
    let got = world.say("private words").await.expect_err("a fault");
    assert_eq!((got.kind, verdict(&got)), (kind, todo), "{fault:?}: {got}");
    assert_eq!(world.stored() - before, stored, "{fault:?}");
    let shown = format!("{got} {got:?}");
    assert!(!shown.contains("private words") && !shown.contains("s3cret"), "{shown}");
    world.say("next").await.expect("the next post goes through");
}

#[tokio::test]
async fn every_post_is_taken_by_the_server() {
    let world = World::new();
    let posts = [
        item(Item::User { text: "hi".into(), images: vec!["data:image/png;base64,AA==".into()], meta: true }),
        Post::Running { turn: turn() },
        item(Item::Reasoning { text: "hm".into() }),
        item(Item::Assistant { text: "yes".into() }),
        item(Item::FunctionCall { call_id: "c".into(), name: "ls".into(), arguments: "{}".into() }),
        item(Item::FunctionCallOutput { call_id: "c".into(), output: "out".into() }),
        item(Item::Compaction(Compaction {
            summary: "so far".into(),
            live: vec![],
            token_count: 0,
            model: None,
        })),
        Post::Usage(Usage { model: Some("m".into()), cost_usd: Some(0.5), ..Usage::default() }),
        Post::Idle { turn: turn(), failed: false },
    ];
    for post in &posts {
        let accepted = world.post(post).await.expect("taken");
        let has_id = !matches!(
            post,
            Post::Item { item: Item::Reasoning { .. } | Item::Compaction(_), .. }
                | Post::Running { .. }
                | Post::Idle { .. }
                | Post::Usage(_)
        );
        assert_eq!(accepted.item_id.is_some(), has_id, "{post:?}");
    }
    assert_eq!(world.sink.events(world.conversation.as_str()).len(), posts.len());
    let kinds: Vec<_> =
        world.sink.items(world.conversation.as_str()).iter().map(|i| i["type"].clone()).collect();
    assert_eq!(kinds, ["message", "message", "function_call", "function_call_output", "compaction"]);
}

#[tokio::test]
async fn a_connection_reset_leaves_doubt_whether_or_not_the_post_was_stored() {
    let world = World::new();
    check(&world, Fault::Reset, FaultKind::Broken, Verdict::ReadBack, 0).await;
    check(&world, Fault::ResetAfterCommit, FaultKind::Broken, Verdict::ReadBack, 1).await;
    check(&world, Fault::HalfResponse, FaultKind::Broken, Verdict::ReadBack, 1).await;
}

#[tokio::test]
async fn no_request_is_sent_twice_by_the_client() {
    let world = World::new();
    world.say("warm").await.expect("a connection is open");
    world.sink.next_posts([Fault::Reset]);
    world.say("once").await.expect_err("reset");
    assert_eq!(world.sink.requests().len(), 2);
}

#[tokio::test]
async fn a_5xx_leaves_doubt_whether_or_not_the_post_was_stored() {
    let world = World::new();
    for code in [500, 502, 503, 504] {
        check(&world, Fault::Status(code), FaultKind::Status(code), Verdict::ReadBack, 0).await;
        check(&world, Fault::StatusAfterCommit(code), FaultKind::Status(code), Verdict::ReadBack, 1).await;
    }
}

#[tokio::test]
async fn a_success_that_is_not_the_apis_is_not_believed() {
    let world = World::new();
    check(&world, Fault::Html, FaultKind::BadAnswer, Verdict::ReadBack, 0).await;
    check(&world, Fault::OtherJson, FaultKind::BadAnswer, Verdict::ReadBack, 1).await;
}

#[tokio::test]
async fn a_redirect_to_a_login_page_is_not_followed() {
    let world = World::new();
    check(&world, Fault::Redirect, FaultKind::Status(302), Verdict::RefreshToken, 0).await;
    assert!(world.sink.requests().iter().all(|request| request.path != "/login"));
}

#[tokio::test]
async fn silence_runs_out_of_time_and_leaves_doubt() {
    let world = World::with(|deliver| deliver.timeout_ms = 1_000);
    let late = FaultKind::Timeout { sent: true };
    check(&world, Fault::Stall, late, Verdict::ReadBack, 0).await;
    check(&world, Fault::StallAfterCommit, late, Verdict::ReadBack, 1).await;
}

#[tokio::test]
async fn a_slow_answer_is_waited_for() {
    let world = World::new();
    world.sink.next_posts([Fault::Slow(Duration::from_millis(50))]);
    world.say("x").await.expect("an answer");
}

#[tokio::test]
async fn retry_after_is_passed_on_in_both_forms() {
    let world = World::new();
    let cases = [("7", 7), ("Thu, 01 Jan 1970 00:00:00 GMT", 0), ("99999999999999", 86_400)];
    for (value, seconds) in cases {
        world.sink.next_posts([Fault::RetryAfter(429, value.to_owned())]);
        let got = world.say("x").await.expect_err("busy");
        assert_eq!((got.kind, verdict(&got)), (FaultKind::Status(429), Verdict::Retry));
        assert_eq!(got.retry_after, Some(Duration::from_secs(seconds)), "{value}");
    }
}

#[tokio::test]
async fn a_refused_item_is_a_dead_letter_and_quotes_none_of_it() {
    let world = World::new();
    let malformed = json!({"type": "external_conversation_item", "data": {"item_type": "message",
        "response_id": "r", "item_data": {"role": "assistant", "content": [{"text": "private words"}]}}});
    let body = Bytes::from(malformed.to_string());
    let got = world.client.post_event(&world.conversation, body).await.expect_err("refused");
    assert_eq!((got.kind, verdict(&got)), (FaultKind::Status(400), Verdict::DeadLetter));
    assert!(got.detail.contains("invalid_input: Invalid data payload"), "{got}");
    assert!(!got.to_string().contains("private words"), "{got}");
}

#[tokio::test]
async fn an_unknown_conversation_is_parked() {
    let world = World::new();
    world.sink.delete_conversation(world.conversation.as_str());
    for got in [
        world.say("x").await.expect_err("unknown"),
        world.client.session(&world.conversation).await.expect_err("unknown"),
        world.client.last_item(&world.conversation).await.expect_err("unknown"),
    ] {
        assert_eq!((got.kind, verdict(&got)), (FaultKind::Status(404), Verdict::Park));
    }
}

#[tokio::test]
async fn a_stopped_server_is_tried_again_and_has_kept_its_items() {
    let world = World::new();
    world.say("before").await.expect("taken");
    world.sink.stop();
    // The first attempt may still find the old connection, closed under it.
    let got = world.say("lost").await.expect_err("stopped");
    assert!(matches!(got.kind, FaultKind::Broken | FaultKind::Connect), "{got}");
    let got = world.say("lost").await.expect_err("stopped");
    assert_eq!((got.kind, verdict(&got)), (FaultKind::Connect, Verdict::Retry), "{got}");
    world.sink.restart();
    world.say("after").await.expect("taken");
    assert_eq!(world.stored(), 2);
}

#[tokio::test]
async fn an_idle_connection_is_let_go_before_the_server_closes_it() {
    let sink = Sink::with_keep_alive(Duration::from_millis(300));
    let conversation = ConversationId::new(sink.create_conversation());
    let deliver = config::Deliver { base_url: sink.url(), keep_alive_ms: 50, ..config::Deliver::default() };
    let client = Client::new(&deliver, Box::new(|_| None)).expect("a client");
    let body = body::event(&said("x"), "hermes", None).expect("a body");
    client.post_event(&conversation, body.clone()).await.expect("taken");
    client.post_event(&conversation, body.clone()).await.expect("taken");
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.post_event(&conversation, body).await.expect("taken");
    let connections: Vec<u64> = sink.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections.last(), Some(&(connections[0] + 1)), "{connections:?}");
}

#[tokio::test]
async fn the_token_is_sent_and_read_again_when_asked() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("token");
    std::fs::write(&path, "first\n").expect("written");
    let world = World::with(|deliver| deliver.auth.file = Some(config::AuthFile { path: path.clone() }));
    world.sink.script(|request| match request.authorization.as_deref() {
        Some("Bearer second") => Fault::None,
        _ => Fault::Status(401),
    });
    let got = world.say("x").await.expect_err("refused");
    assert_eq!((got.kind, verdict(&got)), (FaultKind::Status(401), Verdict::RefreshToken));
    assert!(!world.client.refresh_token().await.expect("read"), "nothing new");
    std::fs::write(&path, "second\n").expect("written");
    assert!(world.client.refresh_token().await.expect("read"));
    world.say("x").await.expect("let in");
    std::fs::remove_file(&path).expect("removed");
    let got = world.client.refresh_token().await.expect_err("no file");
    assert_eq!((got.kind, verdict(&got)), (FaultKind::Token, Verdict::RefreshToken));
    assert!(!format!("{got:?} {:?}", world.client).contains("second"));
}

#[tokio::test]
async fn items_are_read_back_page_by_page_from_either_end() {
    let world = World::new();
    for n in 0..5 {
        world.say(&n.to_string()).await.expect("taken");
    }
    for (order, right) in [(Order::Ascending, "01234"), (Order::Descending, "43210")] {
        let mut after: Option<ItemId> = None;
        let mut seen = String::new();
        loop {
            let page =
                world.client.items(&world.conversation, after.as_ref(), order, 2).await.expect("a page");
            for item in &page.items {
                assert_eq!((item.kind.as_str(), item.response_id.as_ref()), ("message", Some(&turn())));
                assert_eq!(item.payload["model"], "hermes");
                seen.push_str(item.payload["content"][0]["text"].as_str().expect("text"));
            }
            after = page.next().cloned();
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, right);
    }
    let page = world.client.items(&world.conversation, None, Order::Descending, 1).await.expect("a page");
    let last = world.client.last_item(&world.conversation).await.expect("an answer");
    assert_eq!(last.as_ref(), page.items.first().map(|item| &item.id));
}

#[tokio::test]
async fn a_conversation_is_bound_under_a_path_prefix() {
    let world = World::with(|deliver| deliver.base_url.push_str("/api/2.0/omnigent/"));
    world.client.health().await.expect("well");
    let session = HermesSessionId::new("20261129_202802_c4825e");
    world.client.bind(&world.conversation, &session).await.expect("bound");
    let seen = world.client.session(&world.conversation).await.expect("a session");
    assert_eq!(seen.external_session_id, Some(session));
    assert_eq!(seen.id, world.conversation);
    let paths: Vec<String> = world.sink.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(paths[0], "/api/2.0/omnigent/health");
    assert_eq!(paths[1], format!("/api/2.0/omnigent/v1/sessions/{}", world.conversation));
}

#[tokio::test]
async fn the_same_seed_makes_the_same_faults() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let world = World::with(|deliver| deliver.timeout_ms = 1_000);
        world.sink.random_faults(42, 500);
        for n in 0..30 {
            let _ = world.say(&n.to_string()).await;
        }
        assert!(world.sink.wait_until(|state| state.requests.len() == 30, Duration::from_secs(10)));
        let faults: Vec<Fault> = world.sink.requests().into_iter().map(|request| request.fault).collect();
        assert!(faults.iter().any(|fault| *fault != Fault::None));
        runs.push(faults);
    }
    assert_eq!(runs[0], runs[1]);
}
