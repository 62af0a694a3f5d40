//! transform: one row to what the conversation shows of it. Pure: the same row gives the same items, always.
//!
//! A row with anything broken in it still gives what can be read, and still does to its turn what its role
//! says; there is no error to return.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::config;
use crate::event::{
    Beside, Compaction, Item, Notes, Reading, Role, Row, RowItems, Standing, Step, TurnEffect,
};
use crate::hermes::content::{self, Content};
use crate::hermes::synthetic::{self, Origin};
use crate::hermes::{tool_calls, turn};

mod cut;
pub mod egress;
mod notes;

use egress::Egress;

/// The stage, with its settings.
#[derive(Clone, Debug)]
pub struct Transform {
    config: config::Transform,
    egress: Egress,
}

impl Transform {
    /// The stage with the settings of `[transform]`.
    #[must_use]
    pub fn new(config: &config::Transform) -> Self {
        Self { config: config.clone(), egress: Egress::new(&config.egress) }
    }

    /// The same, with the count of what was masked in a place of the caller's.
    #[must_use]
    pub fn counting(mut self, masked: Arc<AtomicU64>) -> Self {
        self.egress = self.egress.counting(masked);
        self
    }

    /// The filter that everything passes on its way out; it has the count of what it masked.
    #[must_use]
    pub fn egress(&self) -> &Egress {
        &self.egress
    }

    /// Turns a reading's row into items; passes on everything else.
    #[must_use]
    pub fn apply(&self, reading: Reading) -> Step {
        match reading {
            Reading::Bound(binding) => Step::Bound(binding),
            Reading::Continued(session) => Step::Continued(session),
            Reading::Rewound(rewind) => Step::Rewound(rewind),
            Reading::Row(row) => Step::Row(self.row(row)),
            Reading::Usage(usage) => Step::Usage(usage),
            Reading::Beside(Beside::Title(title)) => Step::Beside(Beside::Title(self.title(&title))),
            Reading::Beside(beside) => Step::Beside(beside),
        }
    }

    fn row(&self, row: Row) -> RowItems {
        let (id, trace) = (row.id, row.trace);
        let counts_as_turn_end =
            row.role == Role::Assistant && !tool_calls::is_well_formed_list(row.tool_calls.as_deref());
        let notes = if row.standing == Standing::New { self.notes(&row) } else { Notes::default() };
        let (effect, items) = match row.standing {
            Standing::TakenBack if turn::closes(&row) => (TurnEffect::Settles, Vec::new()),
            Standing::Repeated | Standing::TakenBack => (TurnEffect::None, Vec::new()),
            Standing::Summary(compaction) => {
                (TurnEffect::None, vec![Item::Compaction(self.compaction(*compaction))])
            }
            Standing::New => match row.role {
                Role::User if turn::is_aside(&row) => (TurnEffect::None, self.user(&row)),
                Role::User if turn::is_continuation(&row) => (TurnEffect::Continues, self.user(&row)),
                Role::User => (TurnEffect::Opens, self.user(&row)),
                Role::Assistant => self.assistant(&row),
                Role::Tool => (TurnEffect::Continues, vec![self.output(&row)]),
                Role::Other => (TurnEffect::None, Vec::new()),
            },
        };
        RowItems { row: id, trace, effect, counts_as_turn_end, items, notes }
    }

    /// A message in the user's role; none for a row without text and images, or one that is to be skipped.
    fn user(&self, row: &Row) -> Vec<Item> {
        let Content { text, images } = row.content.as_deref().map(content::decode_user).unwrap_or_default();
        let (typed, meta) = match synthetic::origin(&text, row.display_kind.as_deref(), row.observed) {
            Origin::Typed(typed) => (typed.to_owned(), false),
            Origin::Skill(command) => (command, false),
            Origin::Synthetic if self.config.synthetic == config::Synthetic::Skip => return Vec::new(),
            Origin::Synthetic => (text, true),
        };
        let (text, images) = Content { text: typed, images }.show(self.config.max_image_bytes);
        if text.is_empty() && images.is_empty() {
            return Vec::new();
        }
        vec![Item::User { text: self.text(&text), images, meta }]
    }

    /// Reasoning, prose and tool calls of the model, in this order.
    fn assistant(&self, row: &Row) -> (TurnEffect, Vec<Item>) {
        let calls = tool_calls::parse(row.tool_calls.as_deref(), row.id);
        let closes = turn::closes(row);
        let mut items = Vec::new();
        if self.config.reasoning {
            items.extend(self.reasoning(row).map(|text| Item::Reasoning { text }));
        }
        let prose = row.content.as_deref().map(|stored| content::decode(stored).into_text());
        match prose.as_deref().map(str::trim).filter(|prose| !prose.is_empty()) {
            Some(prose) => items.push(Item::Assistant { text: self.text(prose) }),
            None => items.extend(
                note(row.finish_reason.as_deref())
                    .filter(|_| closes)
                    .map(|note| Item::Assistant { text: self.text(note) }),
            ),
        }
        items.extend(calls.into_iter().map(|call| Item::FunctionCall {
            call_id: content::without_nul(call.call_id),
            name: self.text(&call.name),
            arguments: self.arguments(call.arguments),
        }));
        (if closes { TurnEffect::Closes } else { TurnEffect::Continues }, items)
    }

    /// The first readable of the columns, which usually hold the same text. Some providers want a space for
    /// reasoning that there was none of.
    fn reasoning(&self, row: &Row) -> Option<String> {
        [&row.reasoning_content, &row.reasoning]
            .into_iter()
            .find_map(|column| column.as_deref().map(str::trim).filter(|text| !text.is_empty()))
            .map(|text| self.text(text))
    }

    /// A tool's result; one that names no call is shown under an id of its own.
    fn output(&self, row: &Row) -> Item {
        let call_id = row
            .tool_call_id
            .as_deref()
            .and_then(tool_calls::pairing_id)
            .map_or_else(|| format!("hermes_output_{}", row.id), str::to_owned);
        let output = row.content.as_deref().map(content::decode).unwrap_or_default().into_text();
        Item::FunctionCallOutput {
            call_id: content::without_nul(call_id),
            output: cut::cut(&output, self.config.max_output_chars, |end| {
                self.egress.mask_head(&output, end)
            }),
        }
    }

    fn compaction(&self, compaction: Compaction) -> Compaction {
        Compaction {
            summary: self.text(&compaction.summary),
            live: compaction.live.into_iter().map(|(role, text)| (role, self.text(&text))).collect(),
            token_count: compaction.token_count,
            model: compaction.model.map(content::without_nul),
        }
    }

    fn text(&self, text: &str) -> String {
        let text = content::without_nul(text.to_owned());
        cut::cut(&text, self.config.max_text_chars, |end| self.egress.mask_head(&text, end))
    }

    fn arguments(&self, text: String) -> String {
        let text = content::without_nul(text);
        cut::cut(&text, self.config.max_text_chars, |end| self.egress.mask_json(&text, end))
    }
}

/// What is said of an answer that is not there, where the reason is on record. An ending that is merely
/// empty is closed without a word: there is nothing to report.
fn note(finish_reason: Option<&str>) -> Option<&'static str> {
    match finish_reason? {
        "length" => Some("[no answer: the model reached its output limit]"),
        "content_filter" => Some("[no answer: the provider's content filter stopped the model]"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
