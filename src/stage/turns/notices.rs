//! What was last shown beside the items, so that each change is told once.

use crate::event::{
    Beside, CompactionState, Delivery, Item, ModelUsage, NOTE, Notice, Post, RowItems, Todo, Undo, Usage,
};
use crate::ids::ResponseId;

/// What the conversation shows now.
#[derive(Debug, Default)]
pub struct Notices {
    usage: Option<Usage>,
    title: Option<String>,
    todos: Option<Vec<Todo>>,
    compacting: bool,
}

impl Notices {
    /// The conversation was given a title by an earlier run.
    pub fn recall_title(&mut self, title: Option<String>) {
        self.title = title;
    }

    /// What has happened beside the transcript.
    pub fn beside(&mut self, beside: Beside) -> Vec<Delivery> {
        let notice = match beside {
            Beside::Title(title) if self.title.as_ref() != Some(&title) => {
                self.title = Some(title.clone());
                Some(Notice::Title(title))
            }
            Beside::Compacting => {
                self.compacting = true;
                Some(Notice::Compaction(CompactionState::InProgress))
            }
            Beside::CompactionOver if std::mem::take(&mut self.compacting) => {
                Some(Notice::Compaction(CompactionState::Failed))
            }
            Beside::Title(_) | Beside::CompactionOver | Beside::Ended | Beside::Undone(_) => None,
        };
        notice.map(deliver).into_iter().collect()
    }

    /// A compaction's boundary was shown.
    pub fn compacted(&mut self) -> Option<Delivery> {
        let told = std::mem::take(&mut self.compacting);
        told.then(|| deliver(Notice::Compaction(CompactionState::Completed)))
    }

    /// A tool answered with the task list.
    pub fn todos(&mut self, todos: Vec<Todo>) -> Option<Delivery> {
        if self.todos.as_ref() == Some(&todos) {
            return None;
        }
        self.todos = Some(todos.clone());
        Some(deliver(Notice::Todos(todos)))
    }

    /// What the session has used so far. The server adds what is new to the account of the model that is named, so
    /// what other models have used since goes first, each under its own name.
    pub fn usage(&mut self, usage: Usage) -> Vec<Delivery> {
        if self.usage.as_ref() == Some(&usage) {
            return Vec::new();
        }
        let mut deliveries = Vec::new();
        if let Some(before) = self.usage.replace(usage.clone()) {
            if let (Some(old), Some(new)) = (&before.model, &usage.model)
                && old != new
            {
                deliveries.push(deliver(Notice::Model(new.clone())));
            }
            deliveries.extend(by_model(&before, &usage).into_iter().map(|usage| send(Post::Usage(usage))));
        }
        deliveries.push(send(Post::Usage(usage)));
        deliveries
    }
}

/// The totals on the way from `before` to `now`, one for each model but the one in use now. None where a cost is not
/// known: the server would price all of the conversation at the rates of the model that is named.
fn by_model(before: &Usage, now: &Usage) -> Vec<Usage> {
    let mut total = Usage { models: Vec::new(), ..before.clone() };
    let mut steps = Vec::new();
    for model in now.models.iter().filter(|model| Some(&model.model) != now.model.as_ref()) {
        let older = before.models.iter().find(|older| older.model == model.model);
        let less = |of: fn(&ModelUsage) -> u64| of(model).saturating_sub(older.map_or(0, of));
        let input = less(|model| model.input_tokens);
        let output = less(|model| model.output_tokens);
        let cost = f64::max(model.cost_usd - older.map_or(0.0, |older| older.cost_usd), 0.0);
        let (Some(so_far), Some(_)) = (total.cost_usd, now.cost_usd) else { return Vec::new() };
        if (input, output) == (0, 0) {
            continue;
        }
        total.model = Some(model.model.clone());
        total.input_tokens = (total.input_tokens + input).min(now.input_tokens);
        total.output_tokens = (total.output_tokens + output).min(now.output_tokens);
        total.cached_tokens =
            (total.cached_tokens + less(|model| model.cached_tokens)).min(now.cached_tokens);
        total.cost_usd = Some(so_far + cost);
        steps.push(total.clone());
    }
    steps
}

/// Whether a row shows the boundary of a compaction.
pub fn shows_boundary(row: &RowItems) -> bool {
    row.items.iter().any(|item| matches!(item, Item::Compaction(_)))
}

/// That rows were taken back. The note is an item like any other, which the ledger knows by the first of these rows; it
/// stands in a turn of its own, named after the last, so that from both it can be told which rows were spoken of.
pub fn undone(undo: Undo) -> Delivery {
    let messages = match undo.messages {
        1 => "1 message was".to_owned(),
        many => format!("{many} messages were"),
    };
    let text = format!("[{messages} taken back in the terminal]");
    let item = Item::User { text, images: Vec::new(), meta: true };
    let turn = ResponseId::for_turn(undo.last);
    send(Post::Item { item, turn, row: undo.first, place: NOTE })
}

/// That the person cut a turn short.
pub fn interrupted(turn: &ResponseId) -> Delivery {
    deliver(Notice::Interrupted { turn: turn.clone() })
}

fn deliver(notice: Notice) -> Delivery {
    send(Post::Notice(notice))
}

fn send(post: Post) -> Delivery {
    Delivery { post: Some(post), mark: None }
}
