//! What stands in `messages.content`: plain text, or `\0json:` and a list of parts.
//!
//! Hermes stores a message with an image twice in its life: first flat, with a line that names the file and a
//! line `[screenshot]` for each image, and after a compaction as parts that hold the image itself.

use serde_json::Value;

use super::json::{self, Salvaged};

/// What Hermes puts in front of content that is a list or an object; no text can start so by itself.
const SENTINEL: &str = "\0json:";

/// What is shown where nothing could be read behind the sentinel.
const UNREADABLE: &str = "[content that could not be read]";

/// What Hermes leaves of an image when it drops its bytes.
const STRIPPED_IMAGE: &str = "[Attached image — stripped after compression]";

/// What is shown for an image whose bytes the row does not hold.
const ABSENT_IMAGE: &str = "[image]";

/// One image of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageRef {
    /// A `data:image/…` URL.
    Data(String),
    /// An image whose bytes the row does not hold: a path, a remote address, an address cut short.
    Absent,
}

/// A message's content. No text in it holds U+0000.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The text of all parts, one below the other.
    pub text: String,
    /// The images, in order.
    pub images: Vec<ImageRef>,
}

impl Content {
    /// The text and the `data:` URLs to show. An image that is absent, or whose URL is longer than
    /// `max_image_bytes`, becomes a placeholder below the text.
    #[must_use]
    pub fn show(self, max_image_bytes: usize) -> (String, Vec<String>) {
        let mut shown = Vec::new();
        let mut placeholders = Vec::new();
        for image in self.images {
            match image {
                ImageRef::Data(url) if url.len() <= max_image_bytes => shown.push(url),
                ImageRef::Data(url) => placeholders.push(format!("[image: {}, not shown]", size(url.len()))),
                ImageRef::Absent => placeholders.push(ABSENT_IMAGE.to_owned()),
            }
        }
        let mut text = self.text;
        if !placeholders.is_empty() {
            if !text.is_empty() {
                text.push_str("\n\n");
            }
            text.push_str(&placeholders.join("\n"));
        }
        (text, shown)
    }

    /// The text alone, with a placeholder for each image.
    #[must_use]
    pub fn into_text(self) -> String {
        self.show(0).0
    }
}

/// Reads a row's content as stored.
#[must_use]
pub fn decode(stored: &str) -> Content {
    let mut content = match stored.strip_prefix(SENTINEL) {
        None => Content { text: stored.to_owned(), images: Vec::new() },
        Some(raw) => decode_json(&json::mend_surrogates(raw)),
    };
    content.text = without_nul(content.text);
    content
}

/// Reads the content of a row in the user's role: as [`decode`], without the lines that name attached files
/// (paths are nobody's message) and without space around the text.
#[must_use]
pub fn decode_user(stored: &str) -> Content {
    let mut content = decode(stored);
    let text = without_attachment_markers(&content.text);
    let (text, named) = without_image_lines(text.trim());
    // A line beside an image that is there says nothing new; one without its image stands for it.
    for _ in content.images.len()..named {
        content.images.push(ImageRef::Absent);
    }
    Content { text: text.to_owned(), images: content.images }
}

/// Replaces U+0000, which servers and databases refuse in text, by U+FFFD.
#[must_use]
pub fn without_nul(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{FFFD}") } else { text }
}

fn decode_json(raw: &str) -> Content {
    let mut parts = Parts::default();
    if let Ok(value) = serde_json::from_str(raw) {
        parts.add(value);
    } else {
        for found in json::salvage(raw) {
            match found {
                Salvaged::Text(text) => parts.texts.push(text),
                Salvaged::Image(url) => parts.add_image(url),
                Salvaged::CutImage => parts.images.push(ImageRef::Absent),
            }
        }
        if parts.texts.is_empty() && parts.images.is_empty() {
            parts.texts.push(UNREADABLE.to_owned());
        }
    }
    Content { text: parts.texts.join("\n"), images: parts.images }
}

#[derive(Default)]
struct Parts {
    texts: Vec<String>,
    images: Vec<ImageRef>,
}

impl Parts {
    /// Adds a value with all that is nested in it; the parser has bounded the depth.
    fn add(&mut self, value: Value) {
        match value {
            Value::Null => {}
            Value::String(text) if is_encoded(&text) => self.add_image(text),
            Value::String(text) if text == STRIPPED_IMAGE => self.images.push(ImageRef::Absent),
            Value::String(text) => self.texts.push(text),
            Value::Array(values) => values.into_iter().for_each(|value| self.add(value)),
            Value::Object(part) => self.add_part(part),
            scalar => self.texts.push(scalar.to_string()),
        }
    }

    fn add_part(&mut self, mut part: serde_json::Map<String, Value>) {
        let kind = part.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        if matches!(kind.as_str(), "image_url" | "input_image" | "image") || part.contains_key("image_url") {
            match image_address(&mut part) {
                Some(url) => self.add_image(url),
                None => self.images.push(ImageRef::Absent),
            }
        } else if let Some(text) = part.remove("text").filter(|text| !text.is_null()) {
            self.add(text);
        } else if let Some(inner) = part.remove("content").filter(|inner| !inner.is_null()) {
            self.add(inner);
        } else if kind.is_empty() {
            let mut whole = Value::Object(part);
            mask_encoded(&mut whole);
            self.texts.push(whole.to_string());
        } else if !matches!(kind.as_str(), "text" | "input_text" | "output_text") {
            // A kind of part that is not known here, audio or a file: said, not shown.
            let name: String = kind.chars().filter(|c| c.is_alphanumeric() || *c == '_').take(40).collect();
            self.texts.push(format!("[{name}]"));
        }
    }

    fn add_image(&mut self, url: String) {
        let embedded = url.get(..11).is_some_and(|head| head.eq_ignore_ascii_case("data:image/"))
            && url.bytes().all(|b| b.is_ascii_graphic());
        self.images.push(if embedded { ImageRef::Data(url) } else { ImageRef::Absent });
    }
}

/// The address in an image part: `image_url` as a string or as `{url}`, `url`, or `source` with bytes and their type.
fn image_address(part: &mut serde_json::Map<String, Value>) -> Option<String> {
    match part.remove("image_url").or_else(|| part.remove("url")) {
        Some(Value::String(url)) => return Some(url),
        Some(Value::Object(mut nested)) => {
            if let Some(Value::String(url)) = nested.remove("url") {
                return Some(url);
            }
        }
        _ => {}
    }
    let source = part.get("source")?;
    let kind = source.get("media_type")?.as_str()?;
    let data = source.get("data")?.as_str()?;
    Some(format!("data:{kind};base64,{data}"))
}

fn is_encoded(text: &str) -> bool {
    text.starts_with("data:") && text.contains(";base64,")
}

/// Puts a note in place of encoded bytes anywhere in a value that is shown as JSON.
fn mask_encoded(value: &mut Value) {
    match value {
        Value::String(text) if is_encoded(text) => *text = format!("[data: {}, not shown]", size(text.len())),
        Value::Array(values) => values.iter_mut().for_each(mask_encoded),
        Value::Object(fields) => fields.values_mut().for_each(mask_encoded),
        _ => {}
    }
}

/// Removes the markers that a web client's attachments leave in the text: `[Attached: path]`,
/// `[Attached file: path]`, `[Attachment name could not be loaded]`.
fn without_attachment_markers(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((head, tail)) = rest.find("[Attach").and_then(|at| rest.split_at_checked(at)) {
        kept.push_str(head);
        let marker = tail.find(']').and_then(|end| tail.split_at_checked(end + 1)).filter(|(marker, _)| {
            marker.starts_with("[Attached:")
                || marker.starts_with("[Attached file:")
                || (marker.starts_with("[Attachment ") && marker.ends_with(" could not be loaded]"))
        });
        if let Some((_, behind)) = marker {
            rest = behind;
        } else {
            let (bracket, behind) = tail.split_at_checked(1).unwrap_or((tail, ""));
            kept.push_str(bracket);
            rest = behind;
        }
    }
    kept.push_str(rest);
    kept
}

/// Takes the lines that stand for images off the end of a user's text, and says how many images they stand for.
fn without_image_lines(text: &str) -> (&str, usize) {
    let (mut named, mut flattened, mut stripped) = (0, 0, 0);
    let mut kept = text;
    while !kept.is_empty() {
        let (head, line) = kept.rsplit_once('\n').unwrap_or(("", kept));
        match line.trim() {
            "[screenshot]" if named == 0 => flattened += 1,
            STRIPPED_IMAGE => stripped += 1,
            line if names_image(line) => named += 1,
            _ => break,
        }
        kept = head;
    }
    // Without a line that names a file, `[screenshot]` is what the person wrote.
    if named == 0 && stripped == 0 { (text, 0) } else { (kept.trim_end(), named.max(flattened + stripped)) }
}

fn names_image(line: &str) -> bool {
    (line.starts_with("[Image attached at: ") || line.starts_with("[Image attached: ")) && line.ends_with(']')
}

/// A size as people read it.
fn size(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIXEL: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUg==";

    fn text(stored: &str) -> String {
        decode_user(stored).into_text()
    }

    #[test]
    fn plain_text_is_passed_on_with_nul_replaced() {
        assert_eq!(decode(" a\0b\u{1b}[0m ").text, " a\u{FFFD}b\u{1b}[0m ");
        assert_eq!(decode(r#"\0json:["not the sentinel"]"#).text, r#"\0json:["not the sentinel"]"#);
    }

    #[test]
    fn parts_of_every_shape_give_their_text_and_images() {
        let stored = format!(
            "\0json:{}",
            serde_json::json!([
                {"type": "text", "text": "one"},
                [{"type": "input_text", "text": "two"}, "three", 4, true, null],
                {"type": "image_url", "image_url": {"url": PIXEL}},
                {"type": "input_image", "image_url": PIXEL},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
                {"type": "input_audio", "input_audio": {"data": "AAAA"}},
                {"role": "user", "content": [{"text": "five"}]}
            ])
        );
        let content = decode(&stored);
        assert_eq!(content.text, "one\ntwo\nthree\n4\ntrue\n[input_audio]\nfive");
        assert_eq!(
            content.images,
            [
                ImageRef::Data(PIXEL.to_owned()),
                ImageRef::Data(PIXEL.to_owned()),
                ImageRef::Data("data:image/png;base64,AAAA".to_owned()),
                ImageRef::Absent
            ]
        );
    }

    #[test]
    fn an_object_that_is_no_part_is_shown_as_json_without_its_bytes() {
        let stored = format!("\0json:{}", serde_json::json!({"exit_code": 0, "shot": PIXEL}));
        assert_eq!(decode(&stored).text, r#"{"exit_code":0,"shot":"[data: 46 B, not shown]"}"#);
    }

    #[test]
    fn a9_an_image_beyond_the_limit_becomes_a_placeholder() {
        let url = format!("data:image/png;base64,{}", "A".repeat(1_700_000));
        let stored = format!(
            "\0json:{}",
            serde_json::json!([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url}}])
        );
        assert_eq!(
            decode_user(&stored).show(1 << 20),
            ("look\n\n[image: 1.7 MB, not shown]".to_owned(), Vec::new())
        );
        assert_eq!(decode_user(&stored).show(2 << 20), ("look".to_owned(), vec![url]));
    }

    #[test]
    fn a9_truncated_json_keeps_its_text_and_shows_neither_sentinel_nor_base64() {
        let cut = "\0json:[{\"type\":\"text\",\"text\":\"look\"},{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,iVBORw0";
        assert_eq!(text(cut), "look\n\n[image]");
        assert_eq!(text("\0json:[{\"type\":\"text\",\"text\":\"half a sen"), "half a sen");
        assert_eq!(text("\0json:"), UNREADABLE);
        assert_eq!(text("\0json:{{{{"), UNREADABLE);
        assert_eq!(text("\0json:[]"), "");
    }

    #[test]
    fn e1_lone_surrogates_and_nul_escapes_are_replaced_visibly() {
        let stored = "\0json:[{\"type\":\"text\",\"text\":\"a\\ud800b\\u0000c\\ud83d\\ude00\"}]";
        assert_eq!(text(stored), "a\u{FFFD}b\u{FFFD}c\u{1F600}");
    }

    #[test]
    fn depth_beyond_the_parser_keeps_the_text() {
        let deep = format!("\0json:{}\"core\"{}", "[".repeat(5_000), "]".repeat(5_000));
        assert_eq!(text(&deep), "core");
    }

    #[test]
    fn attachment_markers_are_stripped() {
        assert_eq!(
            text(
                "[Attached: /tmp/a.png]\n\n look [Attached file: b]at this [Attachment c could not be loaded]"
            ),
            "look at this"
        );
        assert_eq!(text("[Attached to this: nothing] [Attach"), "[Attached to this: nothing] [Attach");
    }

    #[test]
    fn a_flat_image_turn_keeps_its_text_and_not_the_path() {
        assert_eq!(text("look\n\n[Image attached at: /w/red.png]\n[screenshot]"), "look\n\n[image]");
        assert_eq!(
            text(
                "both\n\n[Image attached at: /w/a.png]\n[Image attached at: /w/b.png]\n[screenshot]\n[screenshot]"
            ),
            "both\n\n[image]\n[image]"
        );
        assert_eq!(text("the caption was\n[screenshot]"), "the caption was\n[screenshot]");
    }

    #[test]
    fn the_same_image_turn_as_parts_has_the_same_text_and_number_of_images() {
        let flat = decode_user("look natively\n\n[Image attached at: /w/red.png]\n[screenshot]");
        let parts = decode_user(&format!(
            "\0json:{}",
            serde_json::json!([
                {"type": "text", "text": "look natively\n\n[Image attached at: /w/red.png]"},
                {"type": "image_url", "image_url": {"url": PIXEL}}
            ])
        ));
        assert_eq!(flat.text, parts.text);
        assert_eq!(flat.images.len(), parts.images.len());
        assert_eq!(parts.show(100), ("look natively".to_owned(), vec![PIXEL.to_owned()]));
        let stripped =
            "look natively\n\n[Image attached at: /w/red.png]\n[Attached image — stripped after compression]";
        assert_eq!(decode_user(stripped), flat);
    }
}
