//! Random conversations of every kind, through the real `SessionDB` of every version, against a model that is simple enough
//! to be right: whatever Hermes does to its rows, the mirror shows what the person saw, once and in order.
//!
//! A failure names its seed; `HERMES_MIRROR_MODEL_SEED=17 cargo test --test model v0_19` plays that one alone.
//! `HERMES_MIRROR_MODEL_PLAYS` is how many are played with each version.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is to fail its test")]

#[allow(dead_code, reason = "each test binary uses its part")]
#[path = "support/hermes.rs"]
mod hermes;
#[path = "support/model/mod.rs"]
mod model;
#[path = "support/peers.rs"]
mod peers;
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};

use hermes::HermesWriter;
use model::play::Play;
use model::watch::{Schedule, Watch};
use support::fault::Random;

const PLAYS: u64 = 50;
/// As many that fail are enough to look into.
const ENOUGH: usize = 4;
const STEPS: u64 = 12;

fn check(name: &str, version: (u32, u32)) {
    let Some((python, modules)) = peers::hermes(name) else { return };
    let home = tempfile::tempdir().unwrap();
    let mut writer = HermesWriter::start_with(&python, modules.as_deref(), home.path());
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seeds = match number("HERMES_MIRROR_MODEL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("HERMES_MIRROR_MODEL_PLAYS").unwrap_or(PLAYS),
    };
    let mut failed = Vec::new();
    for seed in seeds {
        let schedule = match seed % 4 {
            0 => Schedule::Live,
            1 => Schedule::Late,
            _ => Schedule::Restarted,
        };
        let title = format!("Hermes {name}, seed {seed}, {schedule:?}");
        let steps = 3 + usize::try_from(Random::new(seed).below(STEPS)).unwrap();
        let mut play = || {
            let watch = Watch::new(title.clone(), schedule, seed);
            Play::begin(&mut writer, version, seed, watch).run(steps);
        };
        if catch_unwind(AssertUnwindSafe(&mut play)).is_err() {
            failed.push(seed);
        }
        if failed.len() >= ENOUGH {
            break;
        }
    }
    assert!(failed.is_empty(), "Hermes {name}: seeds {failed:?} failed");
}

#[test]
fn v0_13_is_mirrored_as_the_person_saw_it() {
    check("0.13.0", (0, 13));
}

#[test]
fn v0_15_is_mirrored_as_the_person_saw_it() {
    check("0.15.2", (0, 15));
}

#[test]
fn v0_17_is_mirrored_as_the_person_saw_it() {
    check("0.17.0", (0, 17));
}

#[test]
fn v0_18_is_mirrored_as_the_person_saw_it() {
    check("0.18.2", (0, 18));
}

#[test]
fn v0_19_is_mirrored_as_the_person_saw_it() {
    check("0.19.0", (0, 19));
}

#[test]
fn v0_20_is_mirrored_as_the_person_saw_it() {
    check("0.20.1", (0, 20));
}
