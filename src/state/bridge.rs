//! The two files of a bridge directory, in the form that a Python forwarder reads and writes.
//!
//! `hermes_forwarder.json` holds the cursor and the claim, `hermes_status_forwarder.json` the count of turns
//! whose idle edge was delivered. A runner may place a cursor in advance (a forked session), and either kind
//! of forwarder may follow the other in the same directory.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::StateError;
use super::dir;
use super::ledger::{EdgeStatus, OwedEdge, Record};
use crate::event::{Binding, OpenTurn, Resume, Rewind};
use crate::ids::{HermesSessionId, ItemId, MessageId, ResponseId};

const CURSOR: &str = "hermes_forwarder.json";
const STATUS: &str = "hermes_status_forwarder.json";
/// A mark of ours beside the common keys, as `last_item_id` and `owed_edges` are. Who else writes the file leaves them out.
const WRITER: &str = "hermes-mirror";

/// The content of `hermes_forwarder.json`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cursor {
    /// The session that is followed; also what the claim is laid on.
    pub session: Option<HermesSessionId>,
    /// The last row that was delivered whole.
    pub last: MessageId,
    /// A row that was delivered in part, and how many of its items were.
    pub partial: Option<(MessageId, u32)>,
    /// When the terminal was launched, in s since the epoch: the earlier launch has the older right.
    pub launch_epoch_s: f64,
    /// The turn in progress, or owed its idle edge.
    pub turn: Option<ResponseId>,
    /// The newest item that the server acknowledged. It tells what lies behind it where the ledger is lost.
    pub item: Option<ItemId>,
    /// Closing edges that the server has refused until now.
    pub owed: Vec<OwedEdge>,
    /// When the claim was last renewed, in ms since the epoch.
    pub heartbeat_ms: i64,
    /// Whether this program wrote it, so that the ledger knows it all and more exactly.
    pub ours: bool,
}

impl Cursor {
    /// Reads a bridge directory's cursor. A file that is absent, damaged or half written is no cursor; a
    /// value of the wrong kind is an absent one.
    #[must_use]
    pub fn read(bridge_dir: &Path) -> Self {
        let file = object(&bridge_dir.join(CURSOR));
        let id = |key: &str| file.get(key).and_then(Value::as_i64).filter(|id| *id >= 0);
        let text = |key: &str| file.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let partial = id("partial_row_id").zip(id("partial_row_items"));
        Self {
            session: text("hermes_session_id").map(HermesSessionId::new),
            last: MessageId::new(id("last_id").unwrap_or(0)),
            partial: partial
                .and_then(|(row, items)| Some((MessageId::new(row), u32::try_from(items).ok()?)))
                .filter(|(row, items)| row.get() > 0 && *items > 0),
            launch_epoch_s: file.get("launch_epoch_s").and_then(Value::as_f64).unwrap_or(0.0),
            turn: text("active_turn_id").map(ResponseId::new),
            item: text("last_item_id").map(ItemId::new),
            owed: file
                .get("owed_edges")
                .and_then(|owed| serde_json::from_value(owed.clone()).ok())
                .unwrap_or_default(),
            heartbeat_ms: id("heartbeat_ms").unwrap_or(0),
            ours: text("writer") == Some(WRITER),
        }
    }

    fn to_json(&self) -> String {
        let (partial_row, partial_items) = self.partial.unwrap_or_default();
        json!({
            "hermes_session_id": self.session,
            "last_id": self.last,
            "partial_row_id": partial_row,
            "partial_row_items": partial_items,
            "launch_epoch_s": self.launch_epoch_s,
            "active_turn_id": self.turn,
            "last_item_id": self.item,
            "owed_edges": self.owed,
            "heartbeat_ms": self.heartbeat_ms,
            "writer": WRITER,
        })
        .to_string()
    }
}

/// One mirror's bridge directory.
#[derive(Debug)]
pub struct Bridge {
    dir: PathBuf,
    cursor: Cursor,
    closed_turns: Option<u64>,
    written_turns: Option<u64>,
}

impl Bridge {
    /// Opens a bridge directory, making it if need be, and reads what stands there.
    pub fn open(dir: PathBuf, launch_epoch_s: f64) -> Result<Self, StateError> {
        dir::create(&dir)?;
        let cursor = Cursor { launch_epoch_s, ..Cursor::read(&dir) };
        let posted = object(&dir.join(STATUS)).get("posted").and_then(Value::as_u64);
        Ok(Self { dir, cursor, closed_turns: posted, written_turns: posted })
    }

    /// Where to go on; `None` where nothing was followed yet.
    #[must_use]
    pub fn binding(&self) -> Option<Binding> {
        let session = self.cursor.session.clone()?;
        let resume = Resume {
            last: self.cursor.last,
            begins: false,
            partial: self.cursor.partial,
            turn: self.cursor.turn.clone().map(|id| OpenTurn { id, closed: false }),
            closed_turns: self.closed_turns,
            waiting: Vec::new(),
        };
        Some(Binding { session, resume })
    }

    /// The session that is followed.
    #[must_use]
    pub fn session(&self) -> Option<&HermesSessionId> {
        self.cursor.session.as_ref()
    }

    /// Whether this program wrote what stood there.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.cursor.ours
    }

    /// The newest item that the server acknowledged, as far as it stands here.
    #[must_use]
    pub fn item(&self) -> Option<&ItemId> {
        self.cursor.item.as_ref()
    }

    /// Closing edges that the server has refused until now, as far as they stand here.
    #[must_use]
    pub fn owed(&self) -> &[OwedEdge] {
        &self.cursor.owed
    }

    /// What the ledger knows to be owed; written with what is written next.
    pub fn set_owed(&mut self, owed: Vec<OwedEdge>) {
        self.cursor.owed = owed;
    }

    /// When the claim was last renewed, in ms since the epoch.
    #[must_use]
    pub fn heartbeat_ms(&self) -> i64 {
        self.cursor.heartbeat_ms
    }

    /// A session was bound: lays the claim on it.
    pub fn bind(&mut self, binding: &Binding, now_ms: i64) -> Result<(), StateError> {
        self.cursor.session = Some(binding.session.clone());
        self.cursor.last = binding.resume.last;
        self.cursor.partial = binding.resume.partial;
        self.cursor.turn = binding.resume.turn.as_ref().map(|turn| turn.id.clone());
        self.write(now_ms)
    }

    /// The session goes on in another one. Row ids are common to both, so the cursor stays.
    pub fn follow(&mut self, child: &HermesSessionId, now_ms: i64) -> Result<(), StateError> {
        self.cursor.session = Some(child.clone());
        self.closed_turns = Some(0);
        self.write(now_ms)
    }

    /// The cursor goes back, and no turn is open there.
    pub fn rewind(&mut self, rewind: Rewind, now_ms: i64) -> Result<(), StateError> {
        (self.cursor.last, self.cursor.partial, self.cursor.turn) = (rewind.row, None, None);
        self.cursor.session = Some(rewind.session);
        self.closed_turns = Some(rewind.closed_turns);
        self.write(now_ms)
    }

    /// A delivery was acknowledged, or a closing edge was refused: the cursor moves, the list of owed edges changes.
    pub fn advance(&mut self, record: Record, now_ms: i64) -> Result<(), StateError> {
        let Record { mark, item, edge, .. } = record;
        if let Some((turn, status)) = edge {
            self.cursor.owed.retain(|edge| edge.turn != turn);
            if let EdgeStatus::Owed { failed } = status {
                self.cursor.owed.push(OwedEdge { turn, failed });
            }
        }
        if let Some(mark) = mark {
            self.cursor.partial = mark.items.map(|items| (mark.row, items));
            self.cursor.item = item.and_then(|item| item.id).or(self.cursor.item.take());
            if mark.items.is_none() {
                self.cursor.last = mark.row;
            }
            if mark.turn.as_ref().is_none_or(|turn| !turn.closed) {
                self.closed_turns = Some(mark.closed_turns);
            }
            self.cursor.turn = mark.turn.map(|turn| turn.id);
        }
        self.write(now_ms)
    }

    /// Renews the claim. Only while a session is followed: nothing else is claimed.
    pub fn heartbeat(&mut self, now_ms: i64) -> Result<(), StateError> {
        if self.cursor.session.is_none() {
            return Ok(());
        }
        self.write(now_ms)
    }

    fn write(&mut self, now_ms: i64) -> Result<(), StateError> {
        self.cursor.heartbeat_ms = now_ms;
        dir::replace(&self.dir.join(CURSOR), &self.cursor.to_json())?;
        if self.closed_turns != self.written_turns {
            let posted = self.closed_turns.unwrap_or(0);
            dir::replace(&self.dir.join(STATUS), &json!({ "posted": posted }).to_string())?;
            self.written_turns = self.closed_turns;
        }
        Ok(())
    }
}

fn object(path: &Path) -> Map<String, Value> {
    match dir::read(path).and_then(|text| serde_json::from_str(&text).ok()) {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Mark;

    fn bridge(dir: &Path) -> Bridge {
        Bridge::open(dir.to_owned(), 100.0).expect("bridge")
    }

    fn file(dir: &Path, name: &str) -> Value {
        serde_json::from_str(&dir::read(&dir.join(name)).expect("file")).expect("json")
    }

    fn marked(mark: Mark) -> Record {
        Record { mark: Some(mark), ..Record::default() }
    }

    fn binding(session: &str) -> Binding {
        Binding { session: HermesSessionId::new(session), resume: Resume::default() }
    }

    #[test]
    fn the_keys_are_those_of_the_python_forwarder_and_a_mark_of_ours() {
        let dir = tempfile::tempdir().expect("tempdir");
        bridge(dir.path()).bind(&binding("s"), 7).expect("bind");
        let expected = json!({
            "hermes_session_id": "s", "last_id": 0, "partial_row_id": 0, "partial_row_items": 0,
            "launch_epoch_s": 100.0, "active_turn_id": null, "last_item_id": null, "owed_edges": [], "heartbeat_ms": 7, "writer": "hermes-mirror"
        });
        assert_eq!(file(dir.path(), CURSOR), expected);
    }

    #[test]
    fn what_was_delivered_is_where_the_next_start_goes_on() {
        let dir = tempfile::tempdir().expect("tempdir");
        let mut first = bridge(dir.path());
        first.bind(&binding("s"), 1).expect("bind");
        let turn = Some(OpenTurn { id: ResponseId::new("hermes_turn_3"), closed: false });
        let whole =
            Mark { row: MessageId::new(3), items: None, passed: None, turn: turn.clone(), closed_turns: 2 };
        first.advance(marked(whole.clone()), 2).expect("advance");
        first.advance(marked(Mark { row: MessageId::new(4), items: Some(2), ..whole }), 3).expect("advance");
        let resume = bridge(dir.path()).binding().expect("bound").resume;
        assert_eq!(resume.last, MessageId::new(3));
        assert_eq!(resume.partial, Some((MessageId::new(4), 2)));
        assert_eq!(resume.turn, turn);
        assert_eq!(resume.closed_turns, Some(2));
        assert_eq!(file(dir.path(), STATUS), json!({"posted": 2}));
    }

    #[test]
    fn a_turn_counts_as_posted_only_once_its_idle_edge_is_delivered() {
        let dir = tempfile::tempdir().expect("tempdir");
        let mut bridge = bridge(dir.path());
        bridge.bind(&binding("s"), 1).expect("bind");
        let turn = Some(OpenTurn { id: ResponseId::new("t"), closed: true });
        let owed = Mark { row: MessageId::new(3), items: None, passed: None, turn, closed_turns: 1 };
        bridge.advance(marked(owed.clone()), 2).expect("advance");
        assert!(dir::read(&dir.path().join(STATUS)).is_none());
        let edge = Some((ResponseId::new("t"), EdgeStatus::Idle));
        let closed = Record { mark: Some(Mark { turn: None, ..owed }), edge, ..Record::default() };
        bridge.advance(closed, 2).expect("advance");
        assert_eq!(file(dir.path(), STATUS), json!({"posted": 1}));
    }

    #[test]
    fn an_edge_is_owed_until_it_is_settled() {
        let dir = tempfile::tempdir().expect("tempdir");
        let mut first = bridge(dir.path());
        first.bind(&binding("s"), 1).expect("bind");
        for (turn, failed) in [("t1", false), ("t2", true)] {
            let edge = Some((ResponseId::new(turn), EdgeStatus::Owed { failed }));
            first.advance(Record { edge, ..Record::default() }, 2).expect("advance");
        }
        let mut second = bridge(dir.path());
        let owed = [("t1", false), ("t2", true)];
        assert_eq!(
            second.owed(),
            owed.map(|(turn, failed)| OwedEdge { turn: ResponseId::new(turn), failed })
        );
        let edge = Some((ResponseId::new("t1"), EdgeStatus::Idle));
        second.advance(Record { edge, ..Record::default() }, 3).expect("advance");
        assert_eq!(bridge(dir.path()).owed(), [OwedEdge { turn: ResponseId::new("t2"), failed: true }]);
    }

    #[test]
    fn a_cursor_placed_in_advance_is_honoured() {
        let dir = tempfile::tempdir().expect("tempdir");
        let placed =
            r#"{"hermes_session_id": "fork", "last_id": 41, "launch_epoch_s": 5.5, "heartbeat_ms": 1}"#;
        dir::replace(&dir.path().join(CURSOR), placed).expect("write");
        let binding = bridge(dir.path()).binding().expect("bound");
        assert_eq!(binding.session, HermesSessionId::new("fork"));
        assert_eq!(binding.resume.last, MessageId::new(41));
        assert_eq!(binding.resume.closed_turns, None);
    }

    #[test]
    fn a_damaged_file_is_no_cursor_and_no_panic() {
        let dir = tempfile::tempdir().expect("tempdir");
        for damage in
            ["", "\0\0\0\0", "{\"hermes_session_id\": \"s", "[]", "null", "{\"hermes_session_id\": 3}"]
        {
            dir::replace(&dir.path().join(CURSOR), damage).expect("write");
            dir::replace(&dir.path().join(STATUS), damage).expect("write");
            assert_eq!(bridge(dir.path()).binding(), None, "{damage:?}");
        }
        let odd = r#"{"hermes_session_id": "s", "last_id": "x", "partial_row_id": -1, "active_turn_id": 3}"#;
        dir::replace(&dir.path().join(CURSOR), odd).expect("write");
        assert_eq!(bridge(dir.path()).binding().expect("bound").resume, Resume::default());
    }
}
