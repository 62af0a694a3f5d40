//! A mirror of many: each session that matches in a conversation of its own, and nothing else in any.

#![allow(clippy::unwrap_used, reason = "a helper that fails is to fail its test")]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::types::Value as Sql;
use support::fault::Random;
use support::hermes_db::{HermesDb, Kept, Message, Summary};
use support::mirror::{Mirror, PATIENCE, World, write};
use support::sink::State;

const ALL: &str = "[[mirror]]\nmatch = 'all'\n";

/// What each Hermes session's conversation holds: who said what.
fn said(state: &State) -> BTreeMap<String, Vec<String>> {
    let made = state.store.made().iter();
    let mut said = BTreeMap::new();
    for id in made {
        let lines = state.items(id).iter().map(|item| match item["type"].as_str() {
            Some("compaction") => format!("compaction: {}", item["summary"].as_str().unwrap()),
            _ => item["content"][0]["text"].as_str().unwrap_or_default().to_owned(),
        });
        let earlier = said.insert(first_session(state, id), lines.collect());
        assert!(earlier.is_none(), "two conversations for one session");
    }
    said
}

/// The session that a conversation was made for.
fn first_session(state: &State, conversation: &str) -> String {
    let label = state.store.label(conversation, "hermes-mirror.session");
    label.split(' ').next().unwrap().to_owned()
}

fn expect(world: &World, expected: &[(&str, &[&str])]) {
    let expected: BTreeMap<String, Vec<String>> = expected
        .iter()
        .map(|(session, lines)| ((*session).to_owned(), lines.iter().map(|l| (*l).to_owned()).collect()))
        .collect();
    let complete = |state: &State| {
        let now = said(state);
        now.len() >= expected.len() && now.values().flatten().count() >= expected.values().flatten().count()
    };
    let _ = world.sink.wait_until(complete, PATIENCE);
    world.sink.see(|state| assert_eq!(said(state), expected));
}

fn start(world: &World, mirrors: &str) -> Mirror {
    let mirror = world.run(&[], mirrors);
    mirror.wait_for_log("looking for sessions that match");
    mirror
}

fn text(text: &str) -> Sql {
    text.to_owned().into()
}

#[test]
fn each_session_that_begins_has_a_conversation_of_its_own_and_an_older_one_once_it_goes_on() {
    let world = World::new();
    let mut db = world.hermes();
    db.turn("s", "before", "yes");
    db.session("silent", None);
    db.turn("silent", "never", "heard");
    let mirror = start(&world, ALL);
    db.session("new", None);
    db.turn("new", "q", "a");
    db.turn("s", "after", "yes");
    let expected: &[(&str, &[&str])] = &[("new", &["q", "a"]), ("s", &["before", "yes", "after", "yes"])];
    expect(&world, expected);
    mirror.stop();
    world.sink.see(|state| assert_eq!(said(state).len(), 2));
}

#[test]
fn what_nobody_sits_at_is_never_mirrored_and_a_continuation_stays_where_it_began() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = start(&world, ALL);
    db.turn("s", "q", "a");
    let of = |parent: &str| ("parent_session_id", text(parent));
    let marked = |marker: &str| ("model_config", text(&format!("{{\"{marker}\": \"s\"}}")));
    db.session_with("agent", &[("source", text("subagent")), of("s")]);
    db.session_with("delegate", &[of("s"), marked("_delegate_from")]);
    db.session_with("branch", &[of("s"), marked("_branched_from")]);
    db.session_with("bg_120000_abc123", &[]);
    for source in ["cron", "tool", "telegram"] {
        db.session_with(source, &[("source", text(source))]);
    }
    let hidden = ["agent", "delegate", "branch", "bg_120000_abc123", "cron", "tool", "telegram"];
    for session in hidden {
        db.turn(session, "hidden", "hidden");
    }
    db.compact_by_fork("s", "child", Kept { head: 0, tail: 0 }, Summary::Row("sum"));
    db.turn("child", "q2", "a2");
    expect(&world, &[("s", &["q", "a", "compaction: sum", "q2", "a2"])]);
    mirror.stop();
    // And over a restart, from the child alone.
    let mirror = start(&world, ALL);
    db.turn("child", "q3", "a3");
    expect(&world, &[("s", &["q", "a", "compaction: sum", "q2", "a2", "q3", "a3"])]);
    mirror.stop();
}

#[test]
fn private_things_stay_out() {
    let world = World::new();
    let mut db = world.hermes();
    let at = |dir: &str| ("cwd", text(&world.path(dir).display().to_string()));
    let named = |title: &str| ("title", text(title));
    for dir in ["work/open/x", "work/secret/x", "work/mine/x/y", "elsewhere"] {
        std::fs::create_dir_all(world.path(dir)).unwrap();
    }
    write(&world.path("work/mine/.hermes-mirror-ignore"), "");
    std::os::unix::fs::symlink(world.path("work/secret"), world.path("work/alias")).unwrap();
    std::os::unix::fs::symlink(world.path("work/mine/x"), world.path("work/link")).unwrap();
    let rule = format!(
        "[[mirror]]\nmatch = {{ workspace = ['{0}/*'] }}\n\
         exclude = {{ workspace = ['{0}/secret'], title = ['*tax*'] }}\n",
        world.workspace().display()
    );
    let mirror = start(&world, &rule);
    for (session, columns) in [
        ("in the workspace itself", vec![at("work")]),
        ("elsewhere", vec![at("elsewhere")]),
        ("marked, behind a link", vec![at("work/link")]),
        ("nowhere", vec![]),
        ("excluded", vec![at("work/secret/x")]),
        ("excluded by another name", vec![at("work/alias/x")]),
        ("excluded by title", vec![at("work/open"), named("My Taxes")]),
        ("ignored", vec![at("work/mine/x/y")]),
        ("private", vec![at("work/open"), named("[Private] diary")]),
        ("open", vec![at("work/open/x"), named("work")]),
    ] {
        db.session_with(session, &columns);
        db.turn(session, session, "yes");
    }
    expect(&world, &[("open", &["open", "yes"])]);
    mirror.stop();
    world.sink.see(|state| assert_eq!(said(state).len(), 1));
}

#[test]
fn a_marker_that_comes_later_ends_the_mirroring_and_without_it_it_goes_on() {
    let world = World::new();
    let mut db = world.hermes();
    let mirror = start(&world, ALL);
    db.turn("s", "q", "a");
    expect(&world, &[("s", &["q", "a"])]);
    let title = |db: &mut HermesDb, title: &str| {
        db.commit(|write| write.execute("UPDATE sessions SET title = ?1 WHERE id = 's'", [title]).unwrap());
    };
    title(&mut db, "[private]");
    db.append("s", &Message::user("aside"));
    mirror.wait_for_log("nothing more to mirror for now");
    db.session("other", None);
    db.turn("other", "x", "y");
    expect(&world, &[("other", &["x", "y"]), ("s", &["q", "a"])]);
    title(&mut db, "shown again");
    db.append("s", &Message::answer("done"));
    expect(&world, &[("other", &["x", "y"]), ("s", &["q", "a", "aside", "done"])]);
    mirror.stop();
}

#[test]
fn a_session_that_has_a_mirror_of_its_own_is_left_to_it() {
    let world = World::new();
    let mut db = world.hermes();
    let own = "[[mirror]]\nconversation = 'new'\nworkspace = '{work}'\nlaunch_epoch = 1\n";
    let mirror = start(&world, &format!("{ALL}{own}"));
    db.turn("s", "q", "a");
    db.session("other", None);
    db.turn("other", "x", "y");
    expect(&world, &[("other", &["x", "y"]), ("s", &["q", "a"])]);
    mirror.stop();
    assert_eq!(world.sink.made().len(), 2);
}

#[test]
fn several_databases_are_read_at_once_each_with_its_own_rule() {
    let world = World::new();
    let mut db = world.hermes();
    let path = world.path("profile/state.db");
    std::fs::create_dir(world.path("profile")).unwrap();
    let mut profile = HermesDb::create(&path);
    // The same id as in the first: one began as a copy of the other.
    profile.session("s", None);
    let second = format!("[[mirror]]\ndb = '{}'\nmatch = 'all'\nagent_name = 'p'\n", path.display());
    let mirror = start(&world, &format!("{ALL}{second}"));
    mirror.wait_for_log(&path.display().to_string());
    db.turn("s", "q", "a");
    profile.turn("s", "q in the profile", "a");
    let both = |state: &State| {
        state.store.made().len() == 2 && state.store.made().iter().all(|id| state.items(id).len() == 2)
    };
    assert!(world.sink.wait_until(both, PATIENCE));
    mirror.stop();
    let made = world.sink.made();
    let mut agents: Vec<_> =
        made.iter().map(|id| world.sink.items(id)[1]["model"].as_str().unwrap().to_owned()).collect();
    agents.sort();
    assert_eq!(agents, ["hermes-native-ui", "p"]);
}

#[test]
fn kills_and_faults_at_any_moment_lose_no_session_and_double_none() {
    for seed in 0..6 {
        let world = World::new();
        world.configure("[deliver]\ntimeout_ms = 200\ndrain_ms = 4000\n");
        let mut random = Random::new(seed + 100);
        let mut db = world.hermes();
        start(&world, ALL).stop();
        world.sink.random_faults(seed, 150);
        let mut expected: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for n in 0..12 {
            let session = format!("session{}", n % 4);
            if n < 4 {
                db.session(&session, None);
            }
            let mirror = world.run(&[], ALL);
            let lines = [format!("q {n}"), format!("a {n}")];
            db.turn(&session, &lines[0], &lines[1]);
            expected.entry(session).or_default().extend(lines);
            let more = world.sink.requests().len() + usize::try_from(random.below(6)).unwrap();
            let reached = |state: &State| state.requests.len() > more;
            let _ = world.sink.wait_until(reached, Duration::from_millis(300));
            mirror.kill();
        }
        world.sink.heal();
        let mirror = start(&world, ALL);
        let complete = |state: &State| said(state).values().flatten().count() >= 24;
        assert!(world.sink.wait_until(complete, PATIENCE), "seed {seed}");
        mirror.stop();
        world.sink.see(|state| assert_eq!(said(state), expected, "seed {seed}"));
    }
}

#[test]
fn two_hundred_sessions_at_once_are_all_mirrored() {
    let world = World::new();
    world.configure("[deliver]\ntimeout_ms = 60000\n");
    let mut db = world.hermes();
    let mirror = start(&world, ALL);
    for n in 0..200 {
        let session = format!("s{n}");
        db.session(&session, None);
        db.turn(&session, "q", "a");
    }
    let complete = |state: &State| {
        state.store.made().len() == 200 && state.store.made().iter().all(|id| state.items(id).len() == 2)
    };
    assert!(world.sink.wait_until(complete, PATIENCE));
    mirror.stop();
    assert_eq!(world.sink.made().len(), 200);
}

#[test]
fn history_says_how_much_of_an_older_session_is_shown() {
    for (history, expected) in [
        ("'none'", &["c"][..]),
        ("'open-turn'", &["q2", "b", "c"]),
        ("2", &["q2", "b", "c"]),
        ("3", &["q1", "a", "q2", "b", "c"]),
        ("'all'", &["q0", "x", "q1", "a", "q2", "b", "c"]),
    ] {
        let world = World::new();
        let mut db = world.hermes();
        db.turn("s", "q0", "x");
        db.turn("s", "q1", "a");
        db.append("s", &Message::user("q2"));
        db.append("s", &Message::tools("b", &[("c1", "terminal", "{}")]));
        let mirror = start(&world, &format!("{ALL}history = {history}\n"));
        db.append("s", &Message::answer("c"));
        let texts = |state: &State| -> Vec<String> {
            let all: Vec<_> = said(state).into_values().flatten().collect();
            all.into_iter().filter(|text| !text.is_empty()).collect()
        };
        let complete = |state: &State| texts(state).last().is_some_and(|last| last == "c");
        assert!(world.sink.wait_until(complete, PATIENCE), "{history}");
        mirror.stop();
        world.sink.see(|state| assert_eq!(texts(state), expected, "{history}"));
    }
}
