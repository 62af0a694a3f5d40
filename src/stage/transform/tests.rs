mod notes;
mod secrets;

use proptest::option::of as maybe;
use proptest::prelude::*;

use super::*;
use crate::ids::{HermesSessionId, MessageId};

fn row(role: Role, content: &str) -> Row {
    Row {
        id: MessageId::new(7),
        session: HermesSessionId::new("20261129_203834_ef3cd8"),
        role,
        content: Some(content.to_owned()),
        tool_calls: None,
        tool_call_id: None,
        tool_name: None,
        finish_reason: None,
        reasoning: None,
        reasoning_content: None,
        display_kind: None,
        observed: false,
        timestamp: 1_795_984_725.048,
        token_count: None,
        trace: None,
        goes_on: false,
        standing: Standing::New,
    }
}

fn with(config: &config::Transform, row: Row) -> RowItems {
    match Transform::new(config).apply(Reading::Row(row)) {
        Step::Row(items) => items,
        other => panic!("a row became {other:?}"),
    }
}

fn apply(row: Row) -> RowItems {
    with(&config::Transform::default(), row)
}

fn user(text: &str, meta: bool) -> Item {
    Item::User { text: text.to_owned(), images: Vec::new(), meta }
}

fn said(text: &str) -> Item {
    Item::Assistant { text: text.to_owned() }
}

fn call(call_id: &str, name: &str, arguments: &str) -> Item {
    Item::FunctionCall { call_id: call_id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
}

fn output(call_id: &str, output: &str) -> Item {
    Item::FunctionCallOutput { call_id: call_id.to_owned(), output: output.to_owned() }
}

fn thought(text: &str) -> Item {
    Item::Reasoning { text: text.to_owned() }
}

#[test]
fn a_plain_turn_opens_and_closes() {
    let opened = apply(row(Role::User, "first plain"));
    assert_eq!((opened.effect, opened.counts_as_turn_end), (TurnEffect::Opens, false));
    assert_eq!(opened.items, [user("first plain", false)]);
    let closed = apply(row(Role::Assistant, "ANSWER45 to: first plain"));
    assert_eq!((closed.effect, closed.counts_as_turn_end), (TurnEffect::Closes, true));
    assert_eq!(closed.items, [said("ANSWER45 to: first plain")]);
}

#[test]
fn an_assistant_row_shows_reasoning_then_prose_then_calls() {
    let mut step = row(Role::Assistant, "let me look");
    step.tool_calls = Some(
        r#"[{"id": "call_4_0", "call_id": "call_4_0", "type": "function", "function": {"name": "read_file", "arguments": "{\"path\":\"a.txt\"}"}}]"#
            .to_owned(),
    );
    step.reasoning = Some("I think I should read the file".to_owned());
    step.reasoning_content = Some("I think I should read the file".to_owned());
    let shown = apply(step);
    assert_eq!((shown.effect, shown.counts_as_turn_end), (TurnEffect::Continues, false));
    assert_eq!(
        shown.items,
        [
            thought("I think I should read the file"),
            said("let me look"),
            call("call_4_0", "read_file", r#"{"path":"a.txt"}"#)
        ]
    );
}

#[test]
fn a_row_with_broken_tool_calls_still_shows_its_prose_and_goes_on_with_the_turn() {
    let mut step = row(Role::Assistant, "let me look");
    step.tool_calls = Some("[{\"id\": \"call_4".to_owned());
    step.finish_reason = Some("tool_calls".to_owned());
    let shown = apply(step.clone());
    assert_eq!(shown.items, [said("let me look"), call("hermes_call_7_0", "unknown", "[{\"id\": \"call_4")]);
    assert_eq!((shown.effect, shown.counts_as_turn_end), (TurnEffect::Continues, true));
    step.finish_reason = Some("stop".to_owned());
    assert_eq!(apply(step).effect, TurnEffect::Closes);
}

#[test]
fn a9_an_image_goes_along_and_a_large_one_leaves_a_placeholder() {
    let stored = "\0json:[{\"type\": \"text\", \"text\": \"look\"}, {\"type\": \"image_url\", \"image_url\": {\"url\": \"data:image/png;base64,iVBORw0K\"}}]";
    let url = "data:image/png;base64,iVBORw0K".to_owned();
    let shown = apply(row(Role::User, stored)).items;
    assert_eq!(shown, [Item::User { text: "look".to_owned(), images: vec![url], meta: false }]);
    let small = config::Transform { max_image_bytes: 10, ..Default::default() };
    assert_eq!(
        with(&small, row(Role::User, stored)).items,
        [user("look\n\n[image: 30 B, not shown]", false)]
    );
}

#[test]
fn a9_truncated_content_shows_its_text_in_any_role() {
    let stored = "\0json:[{\"type\":\"text\",\"text\":\"look\"},{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,iVB";
    assert_eq!(apply(row(Role::User, stored)).items, [user("look\n\n[image]", false)]);
    assert_eq!(apply(row(Role::Assistant, stored)).items, [said("look\n\n[image]")]);
    assert_eq!(apply(row(Role::Tool, stored)).items, [output("hermes_output_7", "look\n\n[image]")]);
}

#[test]
fn e1_nul_is_replaced_in_every_column() {
    let mut step = row(Role::Assistant, "a\0b");
    step.reasoning = Some("c\0d".to_owned());
    step.tool_calls = Some(r#"[{"id":"e\u0000f","name":"g\u0000h","arguments":"i\u0000j"}]"#.to_owned());
    assert_eq!(
        apply(step).items,
        [thought("c\u{FFFD}d"), said("a\u{FFFD}b"), call("e\u{FFFD}f", "g\u{FFFD}h", "i\u{FFFD}j")]
    );
}

#[test]
fn e3_a_call_without_a_result_and_a_result_without_a_call_are_both_shown() {
    let mut step = row(Role::Assistant, "");
    step.tool_calls = Some(r#"[{"function":{"name":"terminal"}}]"#.to_owned());
    assert_eq!(apply(step).items, [call("hermes_call_7_0", "terminal", "{}")]);
    let orphan = apply(row(Role::Tool, "done"));
    assert_eq!(orphan.effect, TurnEffect::Continues);
    assert_eq!(orphan.items, [output("hermes_output_7", "done")]);
    let mut empty = row(Role::Tool, "");
    empty.content = None;
    empty.tool_call_id = Some("call_1|fc_1".to_owned());
    assert_eq!(apply(empty).items, [output("call_1", "")]);
}

#[test]
fn e4_synthetic_rows_are_meta_or_skipped_and_do_the_same_to_the_turn_either_way() {
    let opener = "[IMPORTANT: Background process proc_1 completed normally (exit code 0).]";
    let continuation = "[System: Your previous response was truncated by the output length limit.]";
    for (stored, effect) in [(opener, TurnEffect::Opens), (continuation, TurnEffect::Continues)] {
        let meta = apply(row(Role::User, stored));
        assert_eq!((meta.effect, meta.items), (effect, vec![user(stored, true)]));
        let skip = config::Transform { synthetic: config::Synthetic::Skip, ..Default::default() };
        let skipped = with(&skip, row(Role::User, stored));
        assert_eq!((skipped.effect, skipped.items), (effect, vec![]));
    }
}

#[test]
fn a_skill_is_the_command_that_the_person_typed() {
    let stored = "[IMPORTANT: The user has invoked the \"myskill\" skill, indicating they want you to follow its instructions. The full skill content is loaded below.]\n\n# My skill\n\nThe user has provided the following instruction alongside the skill invocation: please do it";
    assert_eq!(apply(row(Role::User, stored)).items, [user("/myskill please do it", false)]);
}

#[test]
fn e5_an_empty_or_reasoning_only_ending_closes_its_turn() {
    let mut empty = row(Role::Assistant, " \n ");
    empty.tool_calls = Some("null".to_owned());
    let shown = apply(empty.clone());
    assert_eq!((shown.effect, shown.counts_as_turn_end), (TurnEffect::Closes, true));
    assert_eq!(shown.items, []);
    empty.content = None;
    empty.finish_reason = Some("stop".to_owned());
    empty.reasoning = Some("hm".to_owned());
    let shown = apply(empty.clone());
    assert_eq!((shown.effect, shown.items), (TurnEffect::Closes, vec![thought("hm")]));
    empty.finish_reason = Some("length".to_owned());
    assert_eq!(apply(empty).items, [thought("hm"), said("[no answer: the model reached its output limit]")]);
}

#[test]
fn e6_the_first_readable_reasoning_is_shown_once() {
    let shown = |content: Option<&str>, reasoning: Option<&str>| {
        let mut step = row(Role::Assistant, "");
        step.reasoning_content = content.map(str::to_owned);
        step.reasoning = reasoning.map(str::to_owned);
        apply(step).items
    };
    assert_eq!(shown(Some("a"), Some("b")), [thought("a")]);
    assert_eq!(shown(Some(" "), Some("b")), [thought("b")]);
    assert_eq!(shown(Some("a"), None), [thought("a")]);
    assert_eq!(shown(None, None), []);
    let off = config::Transform { reasoning: false, ..Default::default() };
    let mut step = row(Role::Assistant, "x");
    step.reasoning = Some("a".to_owned());
    assert_eq!(with(&off, step).items, [said("x")]);
}

#[test]
fn e7_twenty_megabytes_of_output_are_cut_between_characters() {
    let shown = apply(row(Role::Tool, &"é".repeat(10_000_000))).items;
    assert_eq!(
        shown,
        [output("hermes_output_7", &format!("{}\n[… 9983616 more characters]", "é".repeat(16_384)))]
    );
    let exact = "é".repeat(16_384);
    assert_eq!(apply(row(Role::Tool, &exact)).items, [output("hermes_output_7", &exact)]);
}

#[test]
fn e7_five_megabytes_of_text_are_cut_between_characters() {
    let shown = apply(row(Role::Assistant, &"語".repeat(1_666_667))).items;
    assert_eq!(shown, [said(&format!("{}\n[… 666667 more characters]", "語".repeat(1_000_000)))]);
}

#[test]
fn rows_that_the_conversation_does_not_show_leave_the_turn_alone() {
    let mut copy = row(Role::Assistant, "again");
    copy.standing = Standing::Repeated;
    let shown = apply(copy);
    assert_eq!((shown.effect, shown.counts_as_turn_end, shown.items), (TurnEffect::None, true, vec![]));
    let mut question = row(Role::User, "taken back");
    question.take_back();
    let shown = apply(question);
    assert_eq!((shown.effect, shown.counts_as_turn_end, shown.items), (TurnEffect::None, false, vec![]));
    let other = apply(row(Role::Other, "system prompt"));
    assert_eq!((other.effect, other.counts_as_turn_end, other.items), (TurnEffect::None, false, vec![]));
}

#[test]
fn an_answer_that_was_taken_back_shows_nothing_and_settles_its_turn() {
    let mut answer = row(Role::Assistant, "taken back");
    answer.take_back();
    let shown = apply(answer);
    assert_eq!((shown.effect, shown.counts_as_turn_end, shown.items), (TurnEffect::Settles, true, vec![]));
}

#[test]
fn a_summary_is_one_boundary() {
    let compaction = Compaction {
        summary: "we built it".to_owned(),
        live: vec![(Role::User, "first plain".to_owned())],
        token_count: 3,
        model: None,
    };
    let mut summary = row(Role::Assistant, "[CONTEXT SUMMARY]: we built it");
    summary.standing = Standing::Summary(Box::new(compaction.clone()));
    let shown = apply(summary);
    assert_eq!((shown.effect, shown.counts_as_turn_end), (TurnEffect::None, true));
    assert_eq!(shown.items, [Item::Compaction(compaction)]);
}

/// Text as rows hold it: anything, and what is special to Hermes.
fn any_text() -> impl Strategy<Value = String> {
    let special = prop::sample::select(vec![
        "\0json:",
        "\0",
        "[{\"type\":\"text\",\"text\":\"",
        "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,",
        "\\u0000",
        "\\ud800",
        "\"}]",
        "[{\"id\":\"",
        "\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]",
        "[Attached: ",
        "[IMPORTANT: The user has invoked the \"",
        "[Image attached at: /p]",
        "\n[screenshot]",
        "[CONTEXT COMPACTION — REFERENCE ONLY]",
        "]\n\n",
        "語",
    ]);
    let bytes =
        prop::collection::vec(any::<u8>(), 0..24).prop_map(|b| String::from_utf8_lossy(&b).into_owned());
    let piece = prop_oneof![3 => special.prop_map(str::to_owned), 2 => bytes, 1 => "[語a]{0,600}"];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

fn any_row() -> impl Strategy<Value = Row> {
    let role = prop::sample::select(vec![Role::User, Role::Assistant, Role::Tool, Role::Other]);
    let summary = prop::collection::vec(any_text(), 0..3).prop_map(|texts| {
        Standing::Summary(Box::new(Compaction {
            summary: texts.concat(),
            live: texts.into_iter().map(|text| (Role::User, text)).collect(),
            token_count: 0,
            model: Some("m\0".to_owned()),
        }))
    });
    let standing = prop_oneof![6 => Just(Standing::New), 1 => Just(Standing::Repeated), 1 => Just(Standing::TakenBack), 1 => summary];
    let columns =
        (maybe(any_text()), maybe(any_text()), maybe(any_text()), maybe(any_text()), maybe(any_text()));
    (role, standing, columns, maybe(any_text()), any::<bool>()).prop_map(
        |(
            role,
            standing,
            (content, tool_calls, tool_call_id, reasoning, reasoning_content),
            finish,
            observed,
        )| Row {
            content,
            tool_calls,
            tool_call_id,
            reasoning,
            reasoning_content,
            finish_reason: finish,
            observed,
            standing,
            ..row(role, "")
        },
    )
}

/// Every text of an item that is not limited, and every one that is, with its limit.
fn texts(item: &Item, config: &config::Transform) -> (Vec<String>, Vec<(String, usize)>) {
    let max = config.max_text_chars;
    match item.clone() {
        Item::Reasoning { text } | Item::Assistant { text } => (vec![], vec![(text, max)]),
        Item::User { text, images, .. } => (images, vec![(text, max)]),
        Item::FunctionCall { call_id, name, arguments } => (vec![call_id, name], vec![(arguments, max)]),
        Item::FunctionCallOutput { call_id, output } => {
            (vec![call_id], vec![(output, config.max_output_chars)])
        }
        Item::Compaction(c) => {
            let live = c.live.into_iter().map(|(_, text)| text);
            (c.model.into_iter().collect(), live.chain([c.summary]).map(|text| (text, max)).collect())
        }
    }
}

proptest! {
    #[test]
    fn any_row_gives_items_without_nul_and_within_the_limits(row in any_row()) {
        let config = config::Transform { max_text_chars: 300, max_output_chars: 256, ..Default::default() };
        let shown = with(&config, row);
        for item in &shown.items {
            let (free, limited) = texts(item, &config);
            for text in &free {
                prop_assert!(!text.contains('\0'));
            }
            for (text, max) in limited {
                prop_assert!(!text.contains('\0'));
                if let Some((at, _)) = text.char_indices().nth(max) {
                    let marker = text.get(at..).unwrap();
                    prop_assert!(marker.starts_with("\n[… ") && marker.ends_with(" more characters]"), "{}", marker);
                }
            }
        }
    }

    #[test]
    fn every_call_and_every_result_of_a_row_is_shown(row in any_row()) {
        let expected = match (&row.standing, row.role) {
            (Standing::New, Role::Assistant) => tool_calls::parse(row.tool_calls.as_deref(), row.id).len(),
            (Standing::New, Role::Tool) => 1,
            _ => 0,
        };
        let shown = apply(row).items;
        let found = shown
            .iter()
            .filter(|item| matches!(item, Item::FunctionCall { .. } | Item::FunctionCallOutput { .. }))
            .count();
        prop_assert_eq!(found, expected);
    }
}
