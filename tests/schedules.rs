//! The promise under random schedules: whatever is written, whatever fails, whenever the mirror is killed, the
//! conversation holds every item once and in order.
//!
//! Each schedule is a world of its own: a transcript that grows (tools, several items in a row, equal items in one
//! turn, compactions, forks), a server that fails, and the program itself as a child process, killed with SIGKILL at
//! any moment, stopped, and started again. A schedule follows from its seed, as far as two processes can.
//!
//! - `HERMES_MIRROR_SCHEDULES`: how many are run; 1,000 by default.
//! - `HERMES_MIRROR_SEED`: runs this one alone.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is to fail its test")]
#![allow(
    clippy::disallowed_methods,
    reason = "the mirror's files are damaged here, never a database of Hermes"
)]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use support::fault::{Fault, Random, random};
use support::mirror::{Mirror, PATIENCE, World, write};
use support::sink::State;
use support::transcript::Transcript;

/// Schedules at once; each waits most of its time.
const WORKERS: u64 = 4;

/// Waits of a few ms, so that a schedule is short.
const SETTINGS: &str = "[detect]\npoll_ms = 20\nfallback_poll_ms = 100\n\
     [deliver]\ntimeout_ms = 100\nconnect_timeout_ms = 100\nqueue_rows = 4\ndrain_ms = 2000\n\
     [deliver.retry]\ninitial_ms = 1\nmax_ms = 10\nmax_retry_after_ms = 10\n";

/// What the schedules came to.
#[derive(Default)]
struct Figures {
    schedules: AtomicU64,
    kills: AtomicU64,
    items: AtomicU64,
    faults: AtomicU64,
}

#[test]
fn every_item_is_committed_once_and_in_order_under_random_schedules() {
    let figures = Figures::default();
    if let Some(seed) = number("HERMES_MIRROR_SEED") {
        play(seed, &figures);
        return;
    }
    let count = number("HERMES_MIRROR_SCHEDULES").unwrap_or(1_000);
    let base = fresh_seed();
    let started = Instant::now();
    let (next, failed) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count || failed.lock().unwrap().len() >= 3 {
                        return;
                    }
                    let seed = base.wrapping_add(n);
                    if catch_unwind(AssertUnwindSafe(|| play(seed, &figures))).is_err() {
                        failed.lock().unwrap().push(seed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    let kills = figures.kills.into_inner();
    println!(
        "{} schedules from seed {base}: {kills} kills, {} faults, {} items, {:.0?}",
        figures.schedules.into_inner(),
        figures.faults.into_inner(),
        figures.items.into_inner(),
        started.elapsed()
    );
    let again: Vec<String> = failed.iter().map(|seed| replay(*seed)).collect();
    assert!(
        failed.is_empty(),
        "{} schedules failed; to play them again:\n{}",
        failed.len(),
        again.join("\n")
    );
    assert!(count < 1_000 || kills >= 200, "too few kills: {kills}");
}

fn replay(seed: u64) -> String {
    format!("HERMES_MIRROR_SEED={seed} cargo test --test schedules")
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is no number: {value}")))
}

/// Another one at each run: the schedules that are tried add up.
fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// Plays the schedule of one seed to its end, and checks what the conversation holds.
fn play(seed: u64, figures: &Figures) {
    let mut random = Random::new(seed);
    let world = World::new();
    world.configure(SETTINGS);
    let mut transcript = Transcript::new(&world);
    misbehave(&world, &mut random);
    let mut mirror = None;
    let mut lost = Lost::default();
    for _ in 0..2 + random.below(4) {
        if random.happens(80) {
            mirror.get_or_insert_with(|| world.attach());
        }
        for _ in 0..=random.below(2) {
            transcript.go_on(&mut random);
        }
        if random.happens(10) {
            world.sink.hang_up();
        }
        let Some(running) = mirror.take() else { continue };
        match random.below(10) {
            0..=5 => kill(running, &world, &mut random, figures),
            6 => {
                running.wait_for_log("mirroring");
                running.terminate();
                running.wait();
            }
            _ => {
                mirror = Some(running);
                continue;
            }
        }
        if random.happens(15) {
            forget(&world, &mut random, &mut lost);
        }
    }
    let mirror = mirror.unwrap_or_else(|| world.attach());
    // An edge that the server refused stands in both.
    let due: &[i64] = if lost.ledger && lost.bridge { &[] } else { transcript.closed() };
    let whole = |state: &State| is_whole(state, &world, &transcript, due);
    let _ = world.sink.wait_until(whole, PATIENCE);
    // Once it says so, it also hears a signal.
    mirror.wait_for_log("mirroring");
    let log = mirror.stop();
    check(seed, &world, &transcript, due, &log);
    figures.schedules.fetch_add(1, Ordering::Relaxed);
    figures.items.fetch_add(u64::try_from(transcript.items().len()).unwrap(), Ordering::Relaxed);
    let struck = world.sink.requests().iter().filter(|request| request.fault != Fault::None).count();
    figures.faults.fetch_add(u64::try_from(struck).unwrap(), Ordering::Relaxed);
}

/// From none to every other request fails. A server that knows source ids again may also commit late.
fn misbehave(world: &World, random_: &mut Random) {
    let (seed, per_mille) = (random_.next(), random_.one_of(&[0, 100, 300, 500]));
    let late = random_.happens(25);
    world.sink.dedupe_source_ids(late);
    let mut script = random(seed, per_mille);
    let mut lateness = Random::new(seed ^ 1);
    world.sink.script(move |request| {
        // A boundary has no source id.
        let known_again = request.json()["data"]["source_id"].is_string();
        if late && known_again && lateness.below(1_000) < per_mille / 5 {
            return Fault::LateCommit(Duration::from_millis(100 + lateness.below(60)));
        }
        script(request)
    });
}

/// SIGKILL after some more requests, or some time, whichever comes first.
fn kill(mirror: Mirror, world: &World, random: &mut Random, figures: &Figures) {
    let requests = world.sink.requests().len() + usize::try_from(random.below(40)).unwrap();
    let moment = Duration::from_micros(random.below(150_000));
    let _ = world.sink.wait_until(|state| state.requests.len() >= requests, moment);
    mirror.kill();
    figures.kills.fetch_add(1, Ordering::Relaxed);
}

/// What a schedule has damaged, at any time.
#[derive(Default)]
struct Lost {
    ledger: bool,
    bridge: bool,
}

/// Damages what the mirror has written down: the bridge files, the ledger, or both.
fn forget(world: &World, random: &mut Random, lost: &mut Lost) {
    let damage = random.one_of(&["", "\0\0\0\0\0\0\0\0", "{\"hermes_session_id\": \"", "[]"]);
    let which = random.below(3);
    if which != 0 {
        lost.bridge = true;
        write(&world.bridge("a").join("hermes_forwarder.json"), damage);
    }
    if which != 1 {
        lost.ledger = true;
        for name in ["ledger.db", "ledger.db-wal", "ledger.db-shm"] {
            let _ = std::fs::remove_file(world.bridge("a").join(name));
        }
        write(&world.bridge("a").join("ledger.db"), damage);
    }
}

fn is_whole(state: &State, world: &World, transcript: &Transcript, due: &[i64]) -> bool {
    let (items, idle) = held(&support::shown::shown(state.events(&world.conversation)));
    items.len() >= transcript.items().len() && due.iter().all(|turn| idle.contains(turn))
}

/// What a conversation shows, apart: its items, and the turns that were called idle.
fn held(shown: &[String]) -> (Vec<String>, Vec<i64>) {
    let live = |line: &String| ["running ", "think: "].iter().any(|word| line.starts_with(word));
    let idle = |line: &String| line.strip_prefix("idle ").map(|turn| turn.parse().expect("a row"));
    let turns = shown.iter().filter_map(idle).collect();
    let items = shown.iter().filter(|line| !live(line) && idle(line).is_none()).cloned().collect();
    (items, turns)
}

fn check(seed: u64, world: &World, transcript: &Transcript, due: &[i64], log: &str) {
    let shown = world.shown();
    let (items, idle) = held(&shown);
    let where_ = || format!("{}\nshown:\n{}\nthe last log:\n{log}", replay(seed), shown.join("\n"));
    assert_eq!(items, transcript.items(), "{}", where_());
    let stored = world.sink.items(&world.conversation).len();
    assert_eq!(stored, items.len(), "{}", where_());
    for turn in transcript.closed() {
        assert!(idle.contains(turn) || !due.contains(turn), "turn {turn} is not idle: {}", where_());
        let first_idle = shown.iter().position(|line| *line == format!("idle {turn}"));
        let last_item = shown.iter().rposition(|line| line.starts_with(&format!("{turn} ")));
        assert!(
            first_idle.is_none() || last_item < first_idle,
            "turn {turn} is idle before its last item: {}",
            where_()
        );
    }
}
