//! What a rewrite's tests play, and how: live, after a pause, and from the start.

use super::hermes_db::{HermesDb, Kept, Message, Version};
use super::mirror::World;

/// Whether the mirror sees a rewrite as it happens, finds it after a pause, or starts after all of it; the last two
/// also with reads and a lane that hold but a row.
const WAYS: [Way; 5] = [Way::Live, Way::Down, Way::DownNarrow, Way::Late, Way::LateNarrow];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Live,
    Down,
    DownNarrow,
    Late,
    LateNarrow,
}

impl Way {
    fn is_late(self) -> bool {
        matches!(self, Self::Late | Self::LateNarrow)
    }

    fn world(self) -> World {
        let world = World::new();
        if matches!(self, Self::DownNarrow | Self::LateNarrow) {
            world.configure("[read]\nbatch_rows = 1\n[deliver]\nqueue_rows = 1\n");
        }
        world
    }
}

/// Plays two acts on a fresh database in each way and checks what is shown in the end.
/// `before`: how much of it the first act shows.
pub fn check(
    version: Version,
    first: impl Fn(&mut HermesDb),
    before: usize,
    second: impl Fn(&mut HermesDb),
    expected: &[&str],
) {
    for way in WAYS {
        println!("{way:?}");
        let world = way.world();
        let mut db = HermesDb::create_as(&world.db_path(), version);
        db.session("s", Some(&world.workspace()));
        let mut mirror = (!way.is_late()).then(|| world.attach());
        first(&mut db);
        if !way.is_late() {
            world.expect(&expected[..before]);
        }
        if matches!(way, Way::Down | Way::DownNarrow) {
            mirror.take().unwrap().stop();
        }
        second(&mut db);
        world.expect_all(mirror.unwrap_or_else(|| world.attach()), expected);
    }
}

/// The first row and the last two.
pub const KEPT: Kept = Kept { head: 1, tail: 2 };

/// Rows 1 to 4.
pub fn two_turns(db: &mut HermesDb) {
    db.turn("s", "one", "first");
    db.turn("s", "two", "second");
}

/// What is shown of them.
pub const TWO_TURNS: [&str; 8] = [
    "1 user: one",
    "running 1",
    "1 agent: first",
    "idle 1", //
    "3 user: two",
    "running 3",
    "3 agent: second",
    "idle 3",
];

/// Two turns, and what comes then.
pub fn then<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&TWO_TURNS, more].concat()
}

/// A plain turn, and one that has come to its tool's result: eight lines.
pub fn turn_with_a_tool(db: &mut HermesDb) {
    db.turn("s", "one", "first");
    db.append("s", &Message::user("look"));
    db.append("s", &Message::tools("", &[("c1", "terminal", "{}")]));
    db.append("s", &Message::result("c1", "out 1"));
}
