use std::convert::Infallible;

use super::*;
use crate::event::Standing;
use crate::ids::HermesSessionId;

fn row(id: i64, text: &str, timestamp: f64) -> Row {
    Row {
        id: MessageId::new(id),
        session: HermesSessionId::new("s"),
        role: Role::User,
        content: Some(text.to_owned()),
        tool_calls: None,
        tool_call_id: None,
        tool_name: None,
        finish_reason: None,
        reasoning: None,
        reasoning_content: None,
        display_kind: None,
        observed: false,
        timestamp,
        token_count: None,
        trace: None,
        standing: Standing::New,
    }
}

#[test]
fn rows_stamped_alike_ask_for_ghosts_only_where_one_repeats_another() {
    let mut rewrites = Rewrites::default();
    let mut asked = Vec::new();
    for id in 1..=200 {
        // The hundredth says what the one before it said.
        let said = if id == 100 { 99 } else { id };
        let row = row(id, &said.to_string(), 1_764_000_000.0);
        let ghosts = |_, first: MessageId| {
            asked.push(first.get());
            Ok::<_, Infallible>(Ghosts::default())
        };
        assert_eq!(rewrites.judge(&row, None, false, ghosts), Ok(Verdict::New), "{id}");
    }
    assert_eq!(asked, [1, 100]);
}

#[test]
fn a_row_that_comes_back_with_the_last_one_s_time_is_a_repeat() {
    let mut rewrites = Rewrites::default();
    let original = row(1, "same", 1_764_000_000.0);
    let none = |_, _| Ok::<_, Infallible>(Ghosts::default());
    assert_eq!(rewrites.judge(&original, None, false, none), Ok(Verdict::New));
    let copy = row(2, "same", 1_764_000_000.0);
    let ghosts =
        |_, _| Ok::<_, Infallible>(Ghosts { rows: vec![Ghost::of(&original, false)], ..Ghosts::default() });
    assert_eq!(rewrites.judge(&copy, None, false, ghosts), Ok(Verdict::Repeated));
}
