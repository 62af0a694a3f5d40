//! The summary that a compaction puts in place of older messages, and its framing.
//!
//! Its row begins with a header of one line (instructions to the model) and ends with a footer line. Where
//! Hermes could not give the summary a row of its own, it merged it into a kept row, whose old text then
//! stands in front, or behind the footer in older versions.

const HEADER: &str = "[CONTEXT COMPACTION — REFERENCE ONLY]";
const LEGACY_HEADER: &str = "[CONTEXT SUMMARY]:";
const FOOTER: &str = "--- END OF CONTEXT SUMMARY";
const PRIOR_HEADER: &str = "[PRIOR CONTEXT — for reference only; not a new message]";
const PRIOR_FOOTER: &str = "[END OF PRIOR CONTEXT — COMPACTION SUMMARY BELOW]";
/// How every header line that Hermes shipped ends.
const HEADER_END: &str = "avoid repeating it:";

/// A compaction's summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The old text of the kept row that the summary was merged into, possibly empty; compare it trimmed.
    pub prior: Option<String>,
    /// The summary without header and footer, trimmed; empty where Hermes summed up nothing.
    pub summary: String,
}

/// Whether a row's text, decoded, is a summary. A message that quotes a header further down is none.
#[must_use]
pub fn is_summary(text: &str) -> bool {
    split(text).is_some()
}

/// Takes a summary apart; `None` for a text that is none.
#[must_use]
pub fn parse(text: &str) -> Option<Summary> {
    let (prior, framed) = split(text)?;
    let body = without_header(framed);
    let (summary, behind) = without_footer(body);
    let behind = behind.trim();
    let prior = prior.map(original).or_else(|| (!behind.is_empty()).then_some(behind));
    Some(Summary { prior: prior.map(str::to_owned), summary: summary.trim().to_owned() })
}

/// The kept row's old text, where there is one, and the framed summary.
fn split(text: &str) -> Option<(Option<&str>, &str)> {
    let text = text.trim_start();
    if starts_framed(text) {
        return Some((None, text));
    }
    let merged = text.strip_prefix(PRIOR_HEADER)?;
    // The last one, for the old text may itself be a merged summary.
    let (at, _) = merged.rmatch_indices(PRIOR_FOOTER).find(|(at, footer)| {
        merged.get(at + footer.len()..).is_some_and(|tail| starts_framed(tail.trim_start()))
    })?;
    let (prior, tail) = merged.split_at_checked(at)?;
    let prior = prior.strip_prefix('\n').unwrap_or(prior);
    let prior = prior.strip_suffix("\n\n").unwrap_or(prior);
    Some((Some(prior), tail.strip_prefix(PRIOR_FOOTER)?.trim_start()))
}

fn starts_framed(text: &str) -> bool {
    text.starts_with(HEADER) || text.starts_with(LEGACY_HEADER)
}

/// What the person or the model wrote, when a row took up a summary at several compactions.
fn original(mut prior: &str) -> &str {
    while let Some((Some(older), _)) = split(prior) {
        prior = older;
    }
    prior
}

fn without_header(framed: &str) -> &str {
    if let Some(body) = framed.strip_prefix(LEGACY_HEADER) {
        return body;
    }
    let (line, body) = framed.split_once('\n').unwrap_or((framed, ""));
    match line.split_once(HEADER_END) {
        Some((_, "")) => body,
        // Text on the header's own line belongs to the summary.
        Some(_) => framed.split_once(HEADER_END).map_or(body, |(_, body)| body),
        None if body.is_empty() => line.strip_prefix(HEADER).unwrap_or(line),
        None => body,
    }
}

/// The summary, and what stands behind the footer line.
fn without_footer(body: &str) -> (&str, &str) {
    let body = body.trim();
    let footer_at = |at: &usize| *at == 0 || body.get(..*at).is_some_and(|head| head.ends_with('\n'));
    let is_last_line = |at: &usize| body.get(*at..).is_some_and(|tail| !tail.contains('\n'));
    let last = body.rfind(FOOTER).filter(footer_at).filter(is_last_line);
    // A footer at the very end is the real one, even if the summary quotes another.
    let found = last.or_else(|| body.match_indices(FOOTER).map(|(at, _)| at).find(footer_at));
    match found.and_then(|at| body.split_at_checked(at)) {
        Some((summary, tail)) => (summary, tail.split_once('\n').map_or("", |(_, behind)| behind)),
        None => (body, ""),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FRAMED: &str = "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted into the summary below. \
        The current session state (files, config, etc.) may reflect work described here — avoid repeating it:\n\
        ## Historical Task Snapshot\nUser asked: 'third plain'\n\nSTUB SUMMARY 50 of earlier turns.\n\n\
        --- END OF CONTEXT SUMMARY — respond to the message below, not the summary above ---";
    const BODY: &str =
        "## Historical Task Snapshot\nUser asked: 'third plain'\n\nSTUB SUMMARY 50 of earlier turns.";

    fn merged(old: &str) -> String {
        format!("{PRIOR_HEADER}\n{old}\n\n{PRIOR_FOOTER}\n\n{FRAMED}")
    }

    #[test]
    fn a_row_of_its_own_gives_the_summary_without_framing() {
        assert_eq!(parse(FRAMED), Some(Summary { prior: None, summary: BODY.to_owned() }));
    }

    #[test]
    fn the_legacy_form_gives_the_summary() {
        let expected = Summary { prior: None, summary: "We built it.".to_owned() };
        assert_eq!(parse("[CONTEXT SUMMARY]: We built it.\n"), Some(expected));
    }

    #[test]
    fn a_summary_merged_into_a_kept_row_gives_both() {
        for old in ["ANSWER48 to: third plain", "", "two\n\nparagraphs"] {
            let expected = Summary { prior: Some(old.to_owned()), summary: BODY.to_owned() };
            assert_eq!(parse(&merged(old)), Some(expected), "{old:?}");
        }
    }

    #[test]
    fn a_row_merged_at_two_compactions_gives_its_first_text_and_the_newest_summary() {
        let parsed = parse(&merged(&merged("the answer").replace("SUMMARY 50", "SUMMARY 49"))).unwrap();
        assert_eq!(parsed, Summary { prior: Some("the answer".to_owned()), summary: BODY.to_owned() });
    }

    #[test]
    fn text_behind_the_footer_is_the_kept_rows() {
        let parsed = parse(&format!("{FRAMED}\n\nplease go on")).unwrap();
        assert_eq!(parsed, Summary { prior: Some("please go on".to_owned()), summary: BODY.to_owned() });
    }

    #[test]
    fn a_cut_or_empty_frame_loses_no_words() {
        assert_eq!(
            parse("[CONTEXT COMPACTION — REFERENCE ONLY] no line behind").unwrap().summary,
            "no line behind"
        );
        assert_eq!(
            parse("[CONTEXT COMPACTION — REFERENCE ONLY] x — avoid repeating it:").unwrap().summary,
            ""
        );
        assert_eq!(
            parse("[CONTEXT COMPACTION — REFERENCE ONLY] x avoid repeating it: a\nb").unwrap().summary,
            "a\nb"
        );
    }

    #[test]
    fn a_message_that_quotes_a_header_is_no_summary() {
        assert!(!is_summary(&format!("why does it say\n{FRAMED}")));
        assert!(!is_summary(&format!("{PRIOR_HEADER}\nwhat is this header?")));
        assert!(!is_summary(&format!("{PRIOR_HEADER}\nwhat is {PRIOR_FOOTER} this?")));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_fail(pieces in proptest::collection::vec(0_usize..9, 0..12)) {
            let words =
                [HEADER, LEGACY_HEADER, FOOTER, PRIOR_HEADER, PRIOR_FOOTER, HEADER_END, "\n", "\n\n", "é text"];
            let text: String = pieces.iter().filter_map(|piece| words.get(*piece).copied()).collect();
            prop_assert_eq!(parse(&text).is_some(), is_summary(&text));
        }
    }
}
