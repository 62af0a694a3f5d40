//! Cutting text to its limit, after what is secret in it was masked.

use std::borrow::Cow;

/// Keeps the first `max` characters of a text as `mask` shows them, and says how many it left out. `mask` is given
/// the number of bytes that are kept.
pub(super) fn cut<'a>(text: &str, max: usize, mask: impl FnOnce(usize) -> Cow<'a, str>) -> String {
    let end = text.char_indices().nth(max).map_or(text.len(), |(at, _)| at);
    let mut left_out = text.get(end..).map_or(0, |rest| rest.chars().count());
    let mut shown = mask(end).into_owned();
    // A mask may be longer than what it hides.
    if let Some((at, _)) = shown.char_indices().nth(max) {
        left_out += shown.get(at..).map_or(0, |rest| rest.chars().count());
        shown.truncate(at);
    }
    if left_out > 0 {
        shown.push_str("\n[… ");
        shown.push_str(&left_out.to_string());
        shown.push_str(" more characters]");
    }
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cut_keeps_exactly_as_many_characters_as_it_may(text in ".{0,40}", max in 0_usize..40) {
            let count = text.chars().count();
            let shown = cut(&text, max, |end| Cow::Borrowed(&text[..end]));
            if count <= max {
                prop_assert_eq!(shown, text);
            } else {
                let kept: String = text.chars().take(max).collect();
                prop_assert_eq!(shown, format!("{kept}\n[… {} more characters]", count - max));
            }
        }
    }

    #[test]
    fn a_mask_that_is_longer_than_its_secret_is_cut_too() {
        assert_eq!(cut("abcdef", 4, |_| Cow::Borrowed("ab[masked]")), "ab[m\n[… 8 more characters]");
    }
}
