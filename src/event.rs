//! Every type that crosses a stage boundary, in flow order.
//!
//! ```text
//! detect ──Wake──▶ read ──Reading──▶ transform ──Step──▶ turns ──Delivery──▶ deliver ──Outcome──▶ state
//! ```

use std::fmt;

mod beside;

pub use beside::{Beside, CompactionState, Ending, Notes, Notice, Todo, TodoStatus, Undo};

use crate::ids::{HermesSessionId, ItemId, MessageId, ResponseId};

/// detect → read: "look". It carries no data; what is true is what the next read finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Wake {
    /// The file system reported a write to the database or its log: a commit is near.
    Event = 1,
    /// The timed poll that always runs beside the watcher.
    Poll = 2,
    /// Files came or went, or the watcher was registered again or lost events: another file may stand under the path,
    /// and whatever happened meanwhile is still to be read.
    Rescan = 4,
    /// A lane that was full has room again, or the pipeline has something to tell.
    Room = 8,
}

/// read → transform: what one mirror's lane is told, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// The mirror has found its Hermes session. First on every lane, and again where its terminal goes on in
    /// another session.
    Bound(Binding),
    /// The session ended by a fork compaction and goes on under another id.
    Continued(HermesSessionId),
    /// An older copy of the database was put in its place.
    Rewound(Rewind),
    /// One row of the session that is followed.
    Row(Row),
    /// What the session has used so far; follows the row that closed a turn.
    Usage(Usage),
    /// Something that no row tells; behind the rows that were there by then.
    Beside(Beside),
}

impl Reading {
    /// The row that it is.
    #[must_use]
    pub fn row(&self) -> Option<MessageId> {
        if let Self::Row(row) = self { Some(row.id) } else { None }
    }
}

/// Where a mirror starts in its session.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    /// The session to follow.
    pub session: HermesSessionId,
    /// What was delivered of it before.
    pub resume: Resume,
}

/// Where a mirror goes on in an older copy of the database: ids are given anew from behind this row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewind {
    /// The last row that both have.
    pub row: MessageId,
    /// The session to follow: the same one, or one that it continued.
    pub session: HermesSessionId,
    /// Turn-closing rows of this session up to that row.
    pub closed_turns: u64,
}

/// How far delivery had come: all rows up to `last`, and the first `partial` items of the row behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resume {
    /// The last row that was delivered whole.
    pub last: MessageId,
    /// The rows up to `last` are history that is not to be shown, and nothing of the session is on record.
    pub begins: bool,
    /// A row that was delivered in part, with the number of its items that were.
    pub partial: Option<(MessageId, u32)>,
    /// The turn that was open, or closed without its idle edge delivered.
    pub turn: Option<OpenTurn>,
    /// Turn-closing rows of this session whose idle edge was delivered, as a Python forwarder counts them;
    /// `None` where nobody has counted.
    pub closed_turns: Option<u64>,
    /// The open turn's calls, and the turns that were set aside, oldest turn first. Read from the rows, never recorded.
    pub waiting: Vec<Waiting>,
}

/// A turn that waits for its tools, or that has their results and then for its model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The turn.
    pub turn: ResponseId,
    /// Its calls that have no result yet.
    pub calls: Vec<String>,
    /// Another one's end settled it, or its closing edge was sent otherwise.
    pub settled: bool,
}

impl Resume {
    /// Moves on to where a delivery that was acknowledged has led.
    pub fn pass(&mut self, mark: &Mark) {
        self.partial = mark.items.map(|items| (mark.row, items));
        if mark.items.is_none() {
            self.last = mark.row;
        }
        self.turn.clone_from(&mark.turn);
        self.closed_turns = Some(mark.closed_turns);
    }
}

/// A turn whose idle edge is still to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenTurn {
    /// What its items carry.
    pub id: ResponseId,
    /// Whether its closing row was delivered, so that only the idle edge is owed.
    pub closed: bool,
}

/// read → pipeline: a session for which a conversation is to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Sighting {
    /// Which of the configuration's mirrors it is for.
    pub mirror: usize,
    /// Which session it is, in the words of the configuration.
    pub purpose: String,
    /// The session, and where the conversation begins in it.
    pub binding: Binding,
    /// When the session began, in s since the epoch.
    pub started_at: f64,
}

/// Who speaks in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The person, or text that Hermes put into the user's role.
    User,
    /// The model.
    Assistant,
    /// The result of one tool call.
    Tool,
    /// Anything else: `system`, `session_meta`, roles to come. Never shown.
    Other,
}

/// One row of Hermes's `messages` table. Text has invalid UTF-8 replaced by U+FFFD, nothing else changed.
#[derive(Clone, PartialEq)]
pub struct Row {
    /// `id`
    pub id: MessageId,
    /// `session_id`
    pub session: HermesSessionId,
    /// `role`
    pub role: Role,
    /// `content`; lists and objects stand as `\0json:` and JSON.
    pub content: Option<String>,
    /// `tool_calls`, JSON as stored, possibly malformed.
    pub tool_calls: Option<String>,
    /// `tool_call_id`
    pub tool_call_id: Option<String>,
    /// `tool_name`
    pub tool_name: Option<String>,
    /// `finish_reason`
    pub finish_reason: Option<String>,
    /// `reasoning`
    pub reasoning: Option<String>,
    /// `reasoning_content`
    pub reasoning_content: Option<String>,
    /// `display_kind` (0.20 and later)
    pub display_kind: Option<String>,
    /// `observed`: another person's message that a messaging gateway overheard.
    pub observed: bool,
    /// `timestamp`, seconds since the epoch.
    pub timestamp: f64,
    /// `token_count`
    pub token_count: Option<u64>,
    /// What to know it again by; set once it is judged.
    pub trace: Option<Trace>,
    /// The answer was cut off, and the rows behind it go on with it; set once it is judged.
    pub goes_on: bool,
    /// What the row is to the conversation.
    pub standing: Standing,
}

impl Row {
    /// The person took it back before anything of it was shown.
    pub fn take_back(&mut self) {
        self.standing = Standing::TakenBack;
        self.trace = None;
    }

    /// About how much memory it holds.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let parts = [
            &self.content,
            &self.tool_calls,
            &self.tool_call_id,
            &self.tool_name,
            &self.reasoning,
            &self.reasoning_content,
        ];
        parts.into_iter().flatten().map(|text| text.len() as u64).sum::<u64>() + 64
    }
}

impl fmt::Debug for Row {
    /// Leaves the transcript's text out, so that no log shows it by accident.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row")
            .field("id", &self.id)
            .field("session", &self.session)
            .field("role", &self.role)
            .field("chars", &self.content.as_ref().map(|c| c.chars().count()))
            .field("standing", &self.standing)
            .finish_non_exhaustive()
    }
}

/// What a row can be known again by, should it come back under another id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trace {
    /// A digest of its content, the same in every version and whatever shape Hermes gives the row.
    pub key: u64,
    /// Its timestamp, seconds since the epoch.
    pub timestamp: f64,
}

/// What a row is to the conversation (design rule 8).
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Standing {
    /// A message the conversation does not show yet.
    #[default]
    New,
    /// A re-inserted copy of a row that was mirrored before.
    Repeated,
    /// Taken back by the person (`active = 0, compacted = 0`) before it was mirrored.
    TakenBack,
    /// The summary that a compaction put in place of older rows.
    Summary(Box<Compaction>),
}

/// A compaction, as its boundary item shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Compaction {
    /// The summary's text, without its framing.
    pub summary: String,
    /// The live transcript after it: role and text of each row that has text.
    pub live: Vec<(Role, String)>,
    /// Tokens of the live transcript, where Hermes counted them; else 0.
    pub token_count: u64,
    /// The session's model.
    pub model: Option<String>,
}

/// What a session and the sessions it continues have used, in total.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Usage {
    /// The model in use now.
    pub model: Option<String>,
    /// Input tokens, those read from a cache included.
    pub input_tokens: u64,
    /// Output tokens, reasoning included.
    pub output_tokens: u64,
    /// Input tokens read from a cache.
    pub cached_tokens: u64,
    /// US dollars, where Hermes recorded a cost.
    pub cost_usd: Option<f64>,
    /// The same by model, calls beside the conversation included (titles, summaries, images), where Hermes keeps
    /// account of it.
    pub models: Vec<ModelUsage>,
}

/// One model's part of what a session has used.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelUsage {
    /// The model.
    pub model: String,
    /// Input tokens, those read from a cache included.
    pub input_tokens: u64,
    /// Output tokens, reasoning included.
    pub output_tokens: u64,
    /// Input tokens read from a cache.
    pub cached_tokens: u64,
    /// US dollars; 0 where Hermes does not know the price.
    pub cost_usd: f64,
}

/// transform → turns: a reading with its row turned into items.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// As [`Reading::Bound`].
    Bound(Binding),
    /// As [`Reading::Continued`].
    Continued(HermesSessionId),
    /// As [`Reading::Rewound`].
    Rewound(Rewind),
    /// The items of one row, in the order they are to be shown; none for a row that shows nothing.
    Row(RowItems),
    /// As [`Reading::Usage`].
    Usage(Usage),
    /// As [`Reading::Beside`].
    Beside(Beside),
}

/// One row's items and what the row does to the turn.
#[derive(Clone, Debug, PartialEq)]
pub struct RowItems {
    /// The row.
    pub row: MessageId,
    /// What to know it again by; none where it was taken back.
    pub trace: Option<Trace>,
    /// What the row does to the turn.
    pub effect: TurnEffect,
    /// Whether a Python forwarder would count the row as a completed turn
    /// (an assistant row without tool calls, re-inserted ones and summaries included).
    pub counts_as_turn_end: bool,
    /// What is shown of it.
    pub items: Vec<Item>,
    /// What it tells beside them.
    pub notes: Notes,
}

/// What a row does to the turn it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEffect {
    /// A user row: opens a turn.
    Opens,
    /// An assistant row with tool calls, a tool's result, or what has the model go on with an answer that was cut off: goes
    /// on with the turn, or recovers one whose start was missed.
    Continues,
    /// An assistant row without tool calls: closes the turn.
    Closes,
    /// The same, taken back before it was shown: nothing closes the turn now but this, and it opens none.
    Settles,
    /// Nothing: a repeat, a summary, a row that is not shown.
    None,
}

/// One thing the conversation shows.
#[derive(Clone, PartialEq)]
pub enum Item {
    /// The model's reasoning: shown live, never stored by the server.
    Reasoning {
        /// The text.
        text: String,
    },
    /// A message in the user's role.
    User {
        /// The text.
        text: String,
        /// Images as `data:` URLs.
        images: Vec<String>,
        /// Text that the person did not type.
        meta: bool,
    },
    /// A message of the model.
    Assistant {
        /// The text.
        text: String,
    },
    /// A tool call.
    FunctionCall {
        /// What pairs it with its output.
        call_id: String,
        /// The tool.
        name: String,
        /// Its arguments, JSON in a string, passed on as stored.
        arguments: String,
    },
    /// A tool's result.
    FunctionCallOutput {
        /// What pairs it with its call.
        call_id: String,
        /// The text.
        output: String,
    },
    /// A compaction's boundary.
    Compaction(Compaction),
}

impl fmt::Debug for Item {
    /// Names the kind and leaves the transcript's text out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Item {
    /// What it is, in words for logs and reports.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Reasoning { .. } => "reasoning",
            Self::User { .. } => "user message",
            Self::Assistant { .. } => "assistant message",
            Self::FunctionCall { .. } => "tool call",
            Self::FunctionCallOutput { .. } => "tool output",
            Self::Compaction(_) => "compaction",
        }
    }
}

/// The place of a note on a row and those behind it, among the row's own items, which count from 1.
pub const NOTE: u32 = 0;

/// turns → deliver: one thing to do on the lane, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// What to send; nothing where only the cursor moves.
    pub post: Option<Post>,
    /// How far the cursor has come once the post is acknowledged.
    pub mark: Option<Mark>,
}

/// What is sent to the server.
#[derive(Clone, Debug, PartialEq)]
pub enum Post {
    /// A conversation item, or the live reasoning beside it.
    Item {
        /// What to show.
        item: Item,
        /// The turn it belongs to.
        turn: ResponseId,
        /// The row it came from.
        row: MessageId,
        /// Which of the row's items it is, from 1, or [`NOTE`].
        place: u32,
    },
    /// A turn has begun, or still runs.
    Running {
        /// The turn.
        turn: ResponseId,
    },
    /// A turn is done: idle, or failed where an item of it was refused.
    Idle {
        /// The turn.
        turn: ResponseId,
        /// Whether it ended as failed.
        failed: bool,
    },
    /// What the session has used.
    Usage(Usage),
    /// What is shown beside the items.
    Notice(Notice),
}

/// The cursor after a delivery.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// The row the delivery came from.
    pub row: MessageId,
    /// `Some(n)`: the row's first `n` items are delivered, more follow. `None`: the row is delivered whole.
    pub items: Option<u32>,
    /// What to remember of the row, once it is passed whole.
    pub passed: Option<Passed>,
    /// The turn that is open, or owed an idle edge, after it.
    pub turn: Option<OpenTurn>,
    /// Turn-closing rows passed so far in this session.
    pub closed_turns: u64,
}

/// What is remembered of a row behind the cursor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Passed {
    /// It was delivered, and this is what to know it again by.
    Delivered(Trace),
    /// It was taken back by then, so nothing of it is shown: should it be live again, it is new.
    TakenBack,
}

/// deliver → state: what became of a post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server has it; a stored item has an id.
    Delivered(Option<ItemId>),
    /// The server will never take it, and why.
    Refused(String),
}
