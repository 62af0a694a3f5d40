//! The promise of `schedules.rs`, once against the real Omnigent server behind a proxy that makes faults.
//!
//! `HERMES_MIRROR_SEED` plays another schedule than the usual one. `scripts/peers` installs the server.

#![allow(clippy::disallowed_methods, reason = "the logs and directories here are the tests' own")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is to fail its test")]

#[allow(dead_code, reason = "each test binary uses its part")]
#[path = "support/omnigent.rs"]
mod omnigent;
#[path = "support/peers.rs"]
mod peers;
#[allow(dead_code, reason = "each test binary uses its part")]
#[path = "support/request.rs"]
mod request;
mod support;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use omnigent::Omnigent;
use serde_json::{Value, json};
use support::fault::{Fault, Random, Script, random};
use support::mirror::{Mirror, World};
use support::proxy::{Proxy, Upstream};
use support::shown::shown;
use support::transcript::Transcript;

/// How long the mirror may take for the rest; only a failing test waits as long.
const PATIENCE: Duration = Duration::from_mins(2);

const KILLS: u32 = 12;

const SETTINGS: &str = "[detect]\npoll_ms = 20\nfallback_poll_ms = 100\n\
     [deliver]\ntimeout_ms = 1500\nqueue_rows = 4\ndrain_ms = 2000\n\
     [deliver.retry]\ninitial_ms = 1\nmax_ms = 20\nmax_retry_after_ms = 20\n";

#[test]
fn a_real_server_behind_faults_and_kills_holds_every_item_once_and_in_order() {
    let Some(peers) = peers::peers() else { return };
    let seed = std::env::var("HERMES_MIRROR_SEED").map_or(20_261_130, |seed| seed.parse().expect("a number"));
    let mut random = Random::new(seed);
    let server = Omnigent::start(&peers.omnigent);
    let conversation = server.new_conversation();
    let proxy = Proxy::start(upstream(&server), script(seed));
    let world = World::new();
    world.configure(SETTINGS);
    let mut transcript = Transcript::new(&world);
    for _ in 0..KILLS {
        let mirror = attach(&world, &proxy, &conversation);
        for _ in 0..=random.below(3) {
            transcript.go_on(&mut random);
        }
        // Any moment will do.
        std::thread::sleep(Duration::from_millis(random.below(700)));
        mirror.kill();
    }
    let mirror = attach(&world, &proxy, &conversation);
    let deadline = Instant::now() + PATIENCE;
    while held(&server, &conversation).len() < transcript.items().len() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(100));
    }
    let log = mirror.stop();
    let struck = proxy.struck();
    println!("{} items, {} faults, {KILLS} kills", transcript.items().len(), struck.len());
    assert_eq!(held(&server, &conversation), transcript.items(), "seed {seed}; {struck:?}\n{log}");
    assert!(struck.len() > 10, "too few faults: {struck:?}");
}

fn upstream(server: &Omnigent) -> Upstream {
    let address = server.base_url().strip_prefix("http://").unwrap().parse().unwrap();
    Arc::new(move |method, path, body| request::request(address, method, path, body).ok())
}

/// A third of the requests fail. A post that carries a source id may also be committed after the mirror gave it up.
fn script(seed: u64) -> Script {
    let mut usual = random(seed, 333);
    let mut lateness = Random::new(seed ^ 1);
    Box::new(move |request| {
        let known_again = request.json()["data"]["source_id"].is_string();
        if known_again && lateness.happens(3) {
            return Fault::LateCommit(Duration::from_millis(1_600));
        }
        usual(request)
    })
}

/// What a runner starts, with the proxy for the server.
fn attach(world: &World, proxy: &Proxy, conversation: &str) -> Mirror {
    let attach = world.attachment("a", conversation, world.launch);
    let mut command = Command::new(attach.get_program());
    for argument in attach.get_args() {
        if argument == world.sink.url().as_str() {
            command.arg(proxy.url())
        } else {
            command.arg(argument)
        };
    }
    command.env_clear().envs(attach.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Mirror::spawn(command)
}

/// The server's items, in the words of a transcript.
fn held(server: &Omnigent, conversation: &str) -> Vec<String> {
    let event = |item: &Value| match item["type"].as_str() {
        Some("compaction") => json!({"type": "compaction", "data": item}),
        kind => json!({"type": "external_conversation_item",
            "data": {"item_type": kind, "response_id": item["response_id"], "item_data": item}}),
    };
    shown(&server.items(conversation).iter().map(event).collect::<Vec<_>>())
}
