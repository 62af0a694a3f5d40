//! What reading does while a lane is full.

mod support;

use std::time::Duration;

use hermes_mirror::event::Reading;
use hermes_mirror::hermes::{Limits, Source};
use hermes_mirror::hooks::Teller;
use hermes_mirror::ids::{ConversationId, HermesSessionId, MessageId};
use hermes_mirror::stage::backlog::Share;
use hermes_mirror::stage::feed::Feed;
use hermes_mirror::stage::memory::Delivered;
use hermes_mirror::stage::pressure::{self, Queued};
use hermes_mirror::stage::search::Target;
use hermes_mirror::stats::Stats;
use support::hermes_db::{HermesDb, Kept, Summary};

#[test]
fn a_parent_is_read_to_its_end_before_its_continuation_though_its_lane_was_full_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let mut db = HermesDb::create(&dir.path().join("state.db"));
    db.session("s", None);
    for _ in 0..5 {
        db.turn("s", "q", "a");
    }
    db.compact_by_fork("s", "child", Kept { head: 0, tail: 2 }, Summary::Row("sum"));
    let (lane_sender, mut lane) = pressure::lane(3, u64::MAX, Share::default());
    let target = Target::Session(HermesSessionId::new("s"));
    let delivered = Delivered {
        range: Box::new(|_| Vec::new()),
        before: Box::new(|_| None),
        undone: Box::new(|_| Vec::new()),
        taken_back: Box::new(|_| Vec::new()),
    };
    let free = Box::new(|_: &HermesSessionId| false);
    let all = Stats::new(String::new(), Teller::default());
    let stats = all.add(ConversationId::new("c"), &all.add_source(db.path.clone()));
    let mut feed = Feed::new(ConversationId::new("c"), target, None, lane_sender, free, delivered, stats);
    let mut source = Source::new(db.path.clone(), Duration::ZERO);
    let open = &*source.open().unwrap();
    feed.bind(open, &[]).unwrap();
    let limits = Limits { rows: 100, bytes: 1 << 20 };
    let scan = open.scan(MessageId::ZERO, &[HermesSessionId::new("s")], limits).unwrap();
    assert!(!feed.take(open, &scan.rows, scan.more).unwrap(), "the lane is full before the parent's end");
    // The lane delivers all it has before the reader goes on.
    let mut rows = 0;
    while let Ok(Queued { reading, .. }) = lane.try_recv() {
        rows += usize::from(matches!(reading, Reading::Row(_)));
    }
    assert!(rows < 10);
    assert!(!feed.follow_continuation(open).unwrap(), "{} rows of the parent are still to come", 10 - rows);
}
