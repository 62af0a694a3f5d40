//! What happens beside the transcript: no row tells it.

use crate::ids::{MessageId, ResponseId};

/// read → turns: something about the session has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Hermes or the person has named the session.
    Title(String),
    /// A compaction has begun.
    Compacting,
    /// Nothing compacts the session any more, whether or not a summary came of it.
    CompactionOver,
    /// The session was ended.
    Ended,
    /// The person took back rows that were shown. No row tells this one either, but what is shown of it is stored.
    Undone(Undo),
}

/// Rows that were shown, and taken back behind that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undo {
    /// The first of them.
    pub first: MessageId,
    /// The last of them.
    pub last: MessageId,
    /// How many messages of the person and the model are among them.
    pub messages: u32,
}

/// turns → deliver: what a server shows beside the items. Sent once, and missed where the server is away: no item
/// waits for it, and no cursor moves with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The conversation's title.
    Title(String),
    /// The model that answers from now on.
    Model(String),
    /// The task list, as it stands now.
    Todos(Vec<Todo>),
    /// The person cut the turn short.
    Interrupted {
        /// The turn.
        turn: ResponseId,
    },
    /// How a compaction stands.
    Compaction(CompactionState),
}

/// How a compaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionState {
    /// It runs.
    InProgress,
    /// Its summary stands in the transcript.
    Completed,
    /// It ended and left the transcript as it was.
    Failed,
}

/// One entry of a task list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Todo {
    /// What is to be done.
    pub content: String,
    /// How far it has come.
    pub status: TodoStatus,
}

/// How far an entry of a task list has come. One that was cancelled is no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// Being done.
    InProgress,
    /// Done.
    Completed,
}

/// What a row tells beside its items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// What it says of how its turn ends.
    pub ending: Ending,
    /// The task list that it holds.
    pub todos: Option<Vec<Todo>>,
}

/// What a row says of how its turn ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// Nothing.
    #[default]
    Silent,
    /// An answer with a reason why it ended.
    Finished,
    /// An answer without one: cut short, or written by Hermes itself, or copied by a version that drops reasons.
    Unfinished,
    /// Hermes's own word that the person interrupted the turn.
    Interrupted,
    /// The result of a tool that was interrupted.
    ToolInterrupted,
}
