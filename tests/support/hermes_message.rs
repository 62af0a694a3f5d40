//! One message, as Hermes stores it.

use rusqlite::Row;
use rusqlite::types::Value;
use serde_json::json;

/// A row of `messages` before it has an id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    pub role: String,
    pub content: Option<String>,
    pub tool_calls: Option<String>,
    pub tool_call_id: Option<String>,
    pub tool_name: Option<String>,
    pub finish_reason: Option<String>,
    pub reasoning: Option<String>,
    pub display_kind: Option<String>,
    pub token_count: Option<i64>,
    /// When it was said, in s since the epoch; `None`: when it is stored.
    pub timestamp: Option<f64>,
}

impl Message {
    pub fn user(text: &str) -> Self {
        Self { role: "user".to_owned(), content: Some(text.to_owned()), ..Self::default() }
    }

    /// The model's last word in a turn.
    pub fn answer(text: &str) -> Self {
        Self {
            role: "assistant".to_owned(),
            content: Some(text.to_owned()),
            finish_reason: Some("stop".to_owned()),
            ..Self::default()
        }
    }

    /// A step that calls tools: id, name, arguments of each.
    pub fn tools(prose: &str, calls: &[(&str, &str, &str)]) -> Self {
        let list = calls.iter().map(|(id, name, arguments)| {
            json!({"id": id, "call_id": id, "response_item_id": format!("fc_{id}"), "type": "function",
                "function": {"name": name, "arguments": arguments}})
        });
        Self {
            tool_calls: Some(serde_json::Value::from(list.collect::<Vec<_>>()).to_string()),
            finish_reason: Some("tool_calls".to_owned()),
            ..Self::answer(prose)
        }
    }

    /// A tool's result.
    pub fn result(call: &str, text: &str) -> Self {
        Self {
            role: "tool".to_owned(),
            content: Some(text.to_owned()),
            tool_call_id: Some(call.to_owned()),
            tool_name: Some("terminal".to_owned()),
            ..Self::default()
        }
    }

    /// The same with reasoning, in both columns.
    pub fn thinking(self, text: &str) -> Self {
        Self { reasoning: Some(text.to_owned()), ..self }
    }

    /// The same without a reason why it ended: an interrupted one, or a summary.
    pub fn unfinished(self) -> Self {
        Self { finish_reason: None, ..self }
    }

    /// How many tools it calls.
    pub fn calls(&self) -> i64 {
        let list = self
            .tool_calls
            .as_deref()
            .and_then(|calls| serde_json::from_str::<serde_json::Value>(calls).ok());
        list.and_then(|list| list.as_array().map(Vec::len)).map_or(0, |count| i64::try_from(count).unwrap())
    }

    pub fn columns(&self, session: &str, timestamp: f64) -> Vec<(&'static str, Value)> {
        vec![
            ("session_id", session.to_owned().into()),
            ("role", self.role.clone().into()),
            ("content", self.content.clone().into()),
            ("tool_calls", self.tool_calls.clone().into()),
            ("tool_call_id", self.tool_call_id.clone().into()),
            ("tool_name", self.tool_name.clone().into()),
            ("finish_reason", self.finish_reason.clone().into()),
            ("reasoning", self.reasoning.clone().into()),
            ("reasoning_content", self.reasoning.clone().into()),
            ("display_kind", self.display_kind.clone().into()),
            ("token_count", self.token_count.into()),
            ("timestamp", timestamp.into()),
        ]
    }

    /// Reads the columns in the order of the fields, without those that only later versions have.
    pub fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            role: row.get(0)?,
            content: row.get(1)?,
            tool_calls: row.get(2)?,
            tool_call_id: row.get(3)?,
            tool_name: row.get(4)?,
            finish_reason: row.get(5)?,
            reasoning: row.get(6)?,
            timestamp: row.get(7)?,
            display_kind: None,
            token_count: None,
        })
    }
}

/// A summary in the frame that a compaction puts around it.
pub fn framed(summary: &str) -> String {
    format!(
        "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted into the summary below. \
         The current session state may reflect work described here — avoid repeating it:\n{summary}\n\n\
         --- END OF CONTEXT SUMMARY — respond to the message below, not the summary above ---"
    )
}

/// A kept row's text with the summary merged into it.
pub fn merged(old: &str, summary: &str) -> String {
    merged_into(old, &framed(summary))
}

/// The same with a summary in its frame.
pub fn merged_into(old: &str, framed: &str) -> String {
    format!(
        "[PRIOR CONTEXT — for reference only; not a new message]\n{old}\n\n\
         [END OF PRIOR CONTEXT — COMPACTION SUMMARY BELOW]\n\n{framed}"
    )
}
