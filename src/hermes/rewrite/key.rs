//! What two rows have in common if one is a copy of the other.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::event::{Role, Row, Trace};
use crate::hermes::{content, summary, tool_calls};
use crate::ids::MessageId;

/// Whether a compaction wrote the row's text, in whole or in part.
#[must_use]
pub fn is_summary(row: &Row) -> bool {
    let text = row.content.as_deref().map(content::decode);
    matches!(row.role, Role::User | Role::Assistant)
        && text.is_some_and(|content| summary::is_summary(&content.into_text()))
}

/// What a row can be known again by.
///
/// Its key is what two rows have in common if one is a copy of the other: role, text and the tool calls' ids.
/// Not the stored bytes: an image turn comes back in another shape, and a summary is merged into a kept row's
/// text, which the key leaves out.
#[must_use]
pub fn trace(row: &Row) -> Trace {
    Trace { key: key(row).0, timestamp: row.timestamp }
}

/// The key, and beside it the summary that the row holds.
pub(super) fn key(row: &Row) -> (u64, Option<u64>) {
    let stored = row.content.as_deref().unwrap_or_default();
    let (text, images) = if row.role == Role::User {
        let content = content::decode_user(stored);
        (content.text, content.images.len())
    } else {
        (content::decode(stored).into_text(), 0)
    };
    let parsed = summary::parse(&text);
    let summary = parsed.as_ref().map(|parsed| xxh3_64(parsed.summary.as_bytes()));
    let text = parsed.and_then(|parsed| parsed.prior).unwrap_or(text);
    let mut hash = Xxh3::new();
    let mut part = |text: &str| {
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    part(match row.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        Role::Other => "other",
    });
    part(text.trim());
    part(&images.to_string());
    part(row.tool_call_id.as_deref().unwrap_or_default());
    for call in tool_calls::parse(row.tool_calls.as_deref(), MessageId::ZERO) {
        part(&call.call_id);
        part(&call.name);
    }
    (hash.digest(), summary)
}
