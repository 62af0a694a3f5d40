//! egress: secrets are masked before text leaves this machine.
//!
//! A model's tools print keys, and people paste them. What is known to be a credential by its shape, and what a
//! configured pattern matches, is replaced by [`MASK`]; what says which kind of secret stood there stays, as in
//! `ghp_[masked]`, `API_KEY=[masked]` or `postgres://ada:[masked]@host`. The same text is always masked alike:
//! read-back compares what was sent.
//!
//! A filter of shapes is a net, not a wall. A secret that looks like a word passes.

mod assignment;
mod bytes;
mod pem;
mod shapes;
mod tokens;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::de::IgnoredAny;

use crate::config;

/// What stands in the place of a secret.
pub const MASK: &str = "[masked]";

/// How far behind the part that is kept a secret is followed, in bytes: a private key of 4096 bits has 3.2 KB.
const MARGIN: usize = 16 * 1024;

/// The filter. Clones share their count.
#[derive(Clone, Debug)]
pub struct Egress {
    config: config::Egress,
    masked: Arc<AtomicU64>,
}

impl Egress {
    /// The filter with the settings of `[transform.egress]`.
    #[must_use]
    pub fn new(config: &config::Egress) -> Self {
        Self { config: config.clone(), masked: Arc::default() }
    }

    /// The same, with its count in a place of the caller's.
    #[must_use]
    pub fn counting(self, masked: Arc<AtomicU64>) -> Self {
        Self { masked, ..self }
    }

    /// Secrets masked so far.
    #[must_use]
    pub fn masked(&self) -> u64 {
        self.masked.load(Ordering::Relaxed)
    }

    /// The text with every secret in it masked.
    #[must_use]
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.mask_head(text, text.len())
    }

    /// The first `end` bytes of the text with every secret masked that begins in them, even where it goes on
    /// behind them: a cut must not leave half a secret, too short to be known by its shape.
    #[must_use]
    pub fn mask_head<'a>(&self, text: &'a str, end: usize) -> Cow<'a, str> {
        let end = text.floor_char_boundary(end);
        let head = text.get(..end).unwrap_or_default();
        let window = text.get(..text.ceil_char_boundary(end.saturating_add(MARGIN))).unwrap_or(text);
        let secrets = self.find(window, end);
        if secrets.is_empty() {
            return Cow::Borrowed(head);
        }
        self.masked.fetch_add(secrets.len() as u64, Ordering::Relaxed);
        let mut shown = String::with_capacity(head.len());
        let mut at = 0;
        for secret in secrets {
            shown.push_str(head.get(at..secret.start).unwrap_or_default());
            shown.push_str(MASK);
            at = secret.end;
        }
        shown.push_str(head.get(at..).unwrap_or_default());
        Cow::Owned(shown)
    }

    /// As [`Egress::mask_head`], and JSON stays JSON: should masking break it, the whole becomes a JSON string.
    #[must_use]
    pub fn mask_json<'a>(&self, text: &'a str, end: usize) -> Cow<'a, str> {
        let shown = self.mask_head(text, end);
        let is_json = |text: &str| serde_json::from_str::<IgnoredAny>(text).is_ok();
        match shown {
            Cow::Owned(shown) if end >= text.len() && !is_json(&shown) && is_json(text) => {
                Cow::Owned(serde_json::Value::String(shown).to_string())
            }
            shown => shown,
        }
    }

    /// What is to be masked, in order and apart from one another; all of it begins before `end`.
    fn find(&self, text: &str, end: usize) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        if !self.config.enabled {
            return found;
        }
        shapes::find(text, end, &mut found);
        for pattern in &self.config.patterns {
            found.extend(pattern.secrets(text));
        }
        found.retain(|secret| secret.start < end);
        found.sort_unstable_by_key(|secret| secret.start);
        let mut apart: Vec<Range<usize>> = Vec::with_capacity(found.len());
        for secret in found {
            match apart.last_mut() {
                Some(last) if secret.start <= last.end => last.end = last.end.max(secret.end),
                _ => apart.push(secret),
            }
        }
        apart
    }
}

#[cfg(test)]
pub(super) mod tests;
