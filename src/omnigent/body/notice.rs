//! The bodies of what is shown beside the items.

use bytes::Bytes;
use serde::Serialize;

use super::write;
use crate::event::{CompactionState, Notice, Todo, TodoStatus};
use crate::ids::ResponseId;

/// Writes a notice as the server expects it; `None` where it says nothing the server would take.
pub(super) fn body(notice: &Notice) -> Option<Bytes> {
    match notice {
        Notice::Title(title) => {
            (!title.is_empty()).then(|| write("external_session_title", &Title { title }))?
        }
        Notice::Model(model) => write("external_model_change", &Model { model }),
        Notice::Todos(todos) => {
            let todos = todos.iter().map(entry).collect();
            write("external_session_todos", &Todos { todos })
        }
        Notice::Interrupted { turn } => {
            write("external_session_interrupted", &Interrupted { response_id: turn })
        }
        Notice::Compaction(state) => {
            let status = match state {
                CompactionState::InProgress => "in_progress",
                CompactionState::Completed => "completed",
                CompactionState::Failed => "failed",
            };
            write("external_compaction_status", &Status { status })
        }
    }
}

#[derive(Serialize)]
struct Title<'a> {
    title: &'a str,
}

#[derive(Serialize)]
struct Model<'a> {
    model: &'a str,
}

#[derive(Serialize)]
struct Interrupted<'a> {
    response_id: &'a ResponseId,
}

#[derive(Serialize)]
struct Status {
    status: &'static str,
}

#[derive(Serialize)]
struct Todos<'a> {
    todos: Vec<Entry<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    content: &'a str,
    status: &'static str,
    /// How the entry reads while it is being done. Hermes has no other words for that.
    active_form: &'a str,
}

fn entry(todo: &Todo) -> Entry<'_> {
    let status = match todo.status {
        TodoStatus::Pending => "pending",
        TodoStatus::InProgress => "in_progress",
        TodoStatus::Completed => "completed",
    };
    Entry { content: &todo.content, status, active_form: &todo.content }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::ids::MessageId;

    fn say(notice: &Notice) -> Value {
        serde_json::from_slice(&body(notice).expect("a body")).expect("JSON")
    }

    #[test]
    fn each_notice_is_written_as_the_server_expects_it() {
        let todo = |content: &str, status| Todo { content: content.to_owned(), status };
        let list = vec![
            todo("a", TodoStatus::Completed),
            todo("b", TodoStatus::InProgress),
            todo("c", TodoStatus::Pending),
        ];
        let shown = json!([{"content": "a", "status": "completed", "activeForm": "a"},
            {"content": "b", "status": "in_progress", "activeForm": "b"},
            {"content": "c", "status": "pending", "activeForm": "c"}]);
        let compaction = |status| json!({"type": "external_compaction_status", "data": {"status": status}});
        for (notice, right) in [
            (
                Notice::Title("A name".into()),
                json!({"type": "external_session_title", "data": {"title": "A name"}}),
            ),
            (Notice::Model("m".into()), json!({"type": "external_model_change", "data": {"model": "m"}})),
            (Notice::Todos(list), json!({"type": "external_session_todos", "data": {"todos": shown}})),
            (
                Notice::Interrupted { turn: ResponseId::for_turn(MessageId::new(7)) },
                json!({"type": "external_session_interrupted", "data": {"response_id": "hermes_turn_7"}}),
            ),
            (Notice::Compaction(CompactionState::InProgress), compaction("in_progress")),
            (Notice::Compaction(CompactionState::Completed), compaction("completed")),
            (Notice::Compaction(CompactionState::Failed), compaction("failed")),
        ] {
            assert_eq!(say(&notice), right);
        }
    }

    #[test]
    fn an_empty_title_is_not_sent() {
        assert_eq!(body(&Notice::Title(String::new())), None);
    }
}
