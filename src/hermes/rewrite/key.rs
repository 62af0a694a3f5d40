//! What a row can be known again by.

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
    let mut hash = Digest::of(row.role, &text, images, row.tool_call_id.as_deref().unwrap_or_default());
    for call in tool_calls::parse(row.tool_calls.as_deref(), MessageId::ZERO) {
        hash.part(&call.call_id);
        hash.part(&call.name);
    }
    (hash.0.digest(), summary)
}

/// The key of a message that was typed, without images.
pub(super) fn typed_key(text: &str) -> u64 {
    Digest::of(Role::User, text, 0, "").0.digest()
}

/// What a key is made of.
struct Digest(Xxh3);

impl Digest {
    fn of(role: Role, text: &str, images: usize, tool_call_id: &str) -> Self {
        let mut digest = Self(Xxh3::new());
        digest.part(match role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
            Role::Other => "other",
        });
        digest.part(text.trim());
        digest.part(&images.to_string());
        digest.part(tool_call_id);
        digest
    }

    fn part(&mut self, text: &str) {
        self.0.update(&(text.len() as u64).to_le_bytes());
        self.0.update(text.as_bytes());
    }
}
