//! Text of others on a terminal: it must not steer it, nor pretend to be a line of ours.

/// The text with every character as its escape that would move the cursor, end the line or turn the direction of writing.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || turns_direction(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

fn turns_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal_and_all_else_stays() {
        assert_eq!(printable("\u{1b}[2J\u{9b}\r\n\t"), "\\u{1b}[2J\\u{9b}\\r\\n\\t");
        assert_eq!(printable("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(printable("größer → 日本 🙂 \\"), "größer → 日本 🙂 \\");
    }
}
