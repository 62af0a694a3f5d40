//! What a row tells beside its items: how its turn ends, and the task list.

use serde_json::Value;

use super::Transform;
use crate::event::{Ending, Notes, Role, Row, Todo, TodoStatus};
use crate::hermes::{content, turn};
use crate::omnigent::limits;

/// Longest entry that is shown, in characters. The server takes 256 KiB in all, each text twice.
const TODO: usize = 250;

/// How Hermes's own word for an interrupted turn begins.
const INTERRUPTED: &str = "Operation interrupted";
/// What stands at the end of the output of a tool that was interrupted.
const TOOL_INTERRUPTED: &str = "[Command interrupted]";
/// How an answer begins that Hermes gives in the model's place, after an error of its own.
const APOLOGY: &str = "I apologize, but I encountered";

impl Transform {
    pub(super) fn notes(&self, row: &Row) -> Notes {
        Notes { ending: ending(row), todos: self.todos(row) }
    }

    /// A title in the form that the server takes: one line.
    pub(super) fn title(&self, title: &str) -> String {
        let line = self.text(title).split_whitespace().collect::<Vec<_>>().join(" ");
        line.chars().take(limits::TITLE_CHARS).collect()
    }

    /// The list that the `todo` tool answers with: always the whole list.
    fn todos(&self, row: &Row) -> Option<Vec<Todo>> {
        if row.role != Role::Tool || row.tool_name.as_deref() != Some("todo") {
            return None;
        }
        let answer: Value =
            serde_json::from_str(&content::decode(row.content.as_deref()?).into_text()).ok()?;
        let list = answer.get("todos")?.as_array()?;
        Some(list.iter().filter_map(|entry| self.todo(entry)).take(limits::TASKS).collect())
    }

    fn todo(&self, entry: &Value) -> Option<Todo> {
        let status = match entry.get("status")?.as_str()? {
            "pending" => TodoStatus::Pending,
            "in_progress" => TodoStatus::InProgress,
            "completed" => TodoStatus::Completed,
            _ => return None,
        };
        let mut content = self.text(entry.get("content")?.as_str()?.trim());
        if let Some((at, _)) = content.char_indices().nth(TODO) {
            content.truncate(at);
            content.push('…');
        }
        Some(Todo { content, status })
    }
}

/// What a row says of how its turn ends. That an answer has no reason why it ended is no proof that the person
/// interrupted it: Hermes also writes answers of its own, and a branch drops the reasons.
fn ending(row: &Row) -> Ending {
    let text =
        || row.content.as_deref().map(|stored| content::decode(stored).into_text()).unwrap_or_default();
    match row.role {
        Role::Tool if text().contains(TOOL_INTERRUPTED) => Ending::ToolInterrupted,
        Role::Assistant if turn::closes(row) => match &row.finish_reason {
            Some(reason) if !reason.is_empty() => Ending::Finished,
            _ if text().starts_with(INTERRUPTED) => Ending::Interrupted,
            _ if text().is_empty() || text().starts_with(APOLOGY) => Ending::Silent,
            _ => Ending::Unfinished,
        },
        _ => Ending::Silent,
    }
}
