//! Reading JSON that is not quite JSON: lone surrogate escapes, and documents cut short.
//!
//! Hermes writes its JSON with Python, which escapes half of a surrogate pair without complaint, and a row
//! may hold the front of a document alone. Neither may cost the row its text.

use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;

/// Replaces each escape of a lone surrogate by one of U+FFFD, so that the JSON can be parsed.
#[must_use]
pub fn mend_surrogates(raw: &str) -> Cow<'_, str> {
    if !raw.contains("\\ud") && !raw.contains("\\uD") {
        return Cow::Borrowed(raw);
    }
    let mut mended = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((head, tail)) = rest.find('\\').and_then(|at| rest.split_at_checked(at)) {
        mended.push_str(head);
        let taken = match escaped_unit(tail) {
            Some(0xD800..=0xDBFF) if tail.get(6..).and_then(escaped_unit).is_some_and(is_low) => 12,
            Some(0xD800..=0xDFFF) => 0,
            Some(_) => 6,
            // The character behind the backslash goes with it: `\\ud800` is a backslash and five letters.
            None => tail.chars().take(2).map(char::len_utf8).sum(),
        };
        if taken == 0 {
            mended.push_str("\\ufffd");
            rest = tail.get(6..).unwrap_or_default();
        } else {
            let (kept, behind) = tail.split_at_checked(taken).unwrap_or((tail, ""));
            mended.push_str(kept);
            rest = behind;
        }
    }
    mended.push_str(rest);
    Cow::Owned(mended)
}

/// The UTF-16 code unit that `\uXXXX` at the start of `text` stands for.
fn escaped_unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    // A sign is no hexadecimal digit, though the parser would take it.
    digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
}

fn is_low(unit: u32) -> bool {
    (0xDC00..=0xDFFF).contains(&unit)
}

/// One string of a broken document that is worth keeping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Salvaged {
    /// Text, whole or the front of it.
    Text(String),
    /// An image's address.
    Image(String),
    /// An image whose address is cut short.
    CutImage,
}

/// Finds what a broken document of content parts still says, in its order.
///
/// Text is what stands under `text` or `content`, or directly in a list; an image is what stands under `url`
/// or `image_url`. A string that ends with the document counts as far as it goes.
#[must_use]
pub fn salvage(raw: &str) -> Vec<Salvaged> {
    let mut found = Vec::new();
    let mut frames: Vec<Frame> = Vec::new();
    let mut chars = raw.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '{' => frames.push(Frame::Object(Key::None)),
            '[' => frames.push(Frame::List),
            '}' | ']' => {
                frames.pop();
            }
            '"' => {
                let (text, closed) = string(&mut chars);
                while chars.peek().is_some_and(char::is_ascii_whitespace) {
                    chars.next();
                }
                let names_value = chars.peek() == Some(&':');
                match frames.last_mut() {
                    Some(Frame::Object(key)) if names_value => *key = Key::of(&text),
                    Some(Frame::Object(key)) => {
                        found.extend(std::mem::replace(key, Key::None).keep(text, closed));
                    }
                    Some(Frame::List) | None => found.extend(Key::Text.keep(text, closed)),
                }
            }
            _ => {}
        }
    }
    found
}

enum Frame {
    Object(Key),
    List,
}

#[derive(Clone, Copy)]
enum Key {
    None,
    Text,
    Image,
}

impl Key {
    fn of(name: &str) -> Self {
        match name {
            "text" | "content" => Self::Text,
            "url" | "image_url" => Self::Image,
            _ => Self::None,
        }
    }

    fn keep(self, value: String, closed: bool) -> Option<Salvaged> {
        match self {
            Self::None => None,
            Self::Image if closed => Some(Salvaged::Image(value)),
            Self::Image => Some(Salvaged::CutImage),
            // Encoded bytes are never text, wherever they stand.
            Self::Text if value.starts_with("data:") && value.contains(";base64,") => {
                Some(Salvaged::CutImage)
            }
            Self::Text if value.is_empty() => None,
            Self::Text => Some(Salvaged::Text(value)),
        }
    }
}

/// Reads a string whose opening quote is passed: its value, and whether its closing quote was there.
fn string(chars: &mut Peekable<Chars<'_>>) -> (String, bool) {
    let mut value = String::new();
    while let Some(c) = chars.next() {
        match c {
            '"' => return (value, true),
            '\\' => match chars.next() {
                Some('n') => value.push('\n'),
                Some('t') => value.push('\t'),
                Some('r') => value.push('\r'),
                Some('b') => value.push('\u{8}'),
                Some('f') => value.push('\u{c}'),
                Some('u') => match code_point(chars) {
                    Some(c) => value.push(c),
                    None if chars.peek().is_none() => {}
                    None => value.push(char::REPLACEMENT_CHARACTER),
                },
                Some(other) => value.push(other),
                None => {}
            },
            c => value.push(c),
        }
    }
    (value, false)
}

/// Reads the digits behind `\u`, and the second half of a pair where the first asks for one.
fn code_point(chars: &mut Peekable<Chars<'_>>) -> Option<char> {
    let first = hex4(chars)?;
    if !(0xD800..=0xDBFF).contains(&first) {
        return char::from_u32(first);
    }
    let mut ahead = chars.clone();
    if ahead.next() != Some('\\') || ahead.next() != Some('u') {
        return None;
    }
    let second = hex4(&mut ahead).filter(|unit| is_low(*unit))?;
    *chars = ahead;
    char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))
}

fn hex4(chars: &mut Peekable<Chars<'_>>) -> Option<u32> {
    let mut unit = 0;
    for _ in 0..4 {
        unit = unit * 16 + chars.next_if(char::is_ascii_hexdigit)?.to_digit(16)?;
    }
    Some(unit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_lone_surrogate_becomes_the_replacement_character_and_a_pair_stays() {
        assert_eq!(mend_surrogates(r#""a\ud83d\ude00b""#), r#""a\ud83d\ude00b""#);
        assert_eq!(mend_surrogates(r#""a\ud83d b\uDE00c\ud8""#), r#""a\ufffd b\ufffdc\ud8""#);
        assert_eq!(mend_surrogates(r#""\ud83d\ud83d\ude00""#), r#""\ufffd\ud83d\ude00""#);
        assert_eq!(mend_surrogates(r#""\\ud83d""#), r#""\\ud83d""#);
    }

    #[test]
    fn a_document_cut_anywhere_keeps_the_text_in_front_of_the_cut() {
        let whole = r#"[{"type":"text","text":"look \"here\"\u0021\ud83d\ude00"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]"#;
        for cut in 0..=whole.len() {
            for found in salvage(whole.get(..cut).unwrap()) {
                match found {
                    Salvaged::Text(text) => {
                        // Half a surrogate pair at the cut is a lone surrogate.
                        let text = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
                        assert!("look \"here\"!\u{1F600}".starts_with(text), "{text}");
                    }
                    Salvaged::Image(url) => assert_eq!(url, "data:image/png;base64,AAAA"),
                    Salvaged::CutImage => {}
                }
            }
        }
        assert_eq!(salvage(whole).len(), 2);
    }

    #[test]
    fn names_and_other_values_are_not_taken_for_text() {
        assert_eq!(
            salvage(r#"[{"type":"text","id":"x","text":"one"},"two",{"te"#),
            [Salvaged::Text("one".to_owned()), Salvaged::Text("two".to_owned())]
        );
    }

    proptest! {
        #[test]
        fn what_can_be_parsed_can_be_parsed_after_mending(value in ".*") {
            let json = serde_json::to_string(&value).unwrap();
            prop_assert_eq!(serde_json::from_str::<String>(&mend_surrogates(&json)).unwrap(), value);
        }

        #[test]
        fn nothing_makes_it_fail(raw in r#"([\[\]{}":,\\u]|ud8|\\ud83d|text|.){0,60}"#) {
            let _ = mend_surrogates(&raw);
            let _ = salvage(&raw);
        }
    }
}
