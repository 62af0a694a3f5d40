use std::convert::Infallible;

use super::*;
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
        goes_on: false,
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

/// Judges rows one after the other, each with the ghosts that `ghosts` gives. Returns how often it was asked.
fn asked(rows: &[Row], ghosts: &[Ghost]) -> usize {
    let (mut rewrites, mut asked) = (Rewrites::default(), 0);
    for row in rows {
        let given = |_, _| {
            asked += 1;
            Ok::<_, Infallible>(Ghosts { rows: ghosts.to_vec(), ..Ghosts::default() })
        };
        assert_eq!(rewrites.judge(row, None, false, given), Ok(Verdict::New), "{}", row.id);
    }
    asked
}

#[test]
fn rows_in_no_order_do_not_ask_for_the_whole_session_each() {
    let backwards: Vec<Row> =
        (1..=1_000_i32).map(|id| row(id.into(), &id.to_string(), 1_764_000_000.0 - f64::from(id))).collect();
    // The first is asked for because nothing is known before it.
    assert_eq!(asked(&backwards, &[]), IN_VAIN as usize + 1);
}

#[test]
fn a_transcript_that_is_appended_again_and_again_has_its_history_read_once_each_time() {
    const ROWS: i32 = 500;
    const WAVES: i32 = 10;
    for (keeps_times, expected) in [(true, WAVES), (false, 0)] {
        let at = |n: i32| 1_764_000_000.0 + f64::from(n);
        let said: Vec<Row> = (1..=ROWS).map(|n| row(n.into(), &n.to_string(), at(n))).collect();
        let ghosts: Vec<Ghost> = said.iter().map(|row| Ghost::of(row, true)).collect();
        let (mut rewrites, mut asked) = (Rewrites::default(), 0);
        let mut judge = |row: &Row, next: f64| {
            let given = |_, _| {
                let again = row.id.get() > i64::from(ROWS);
                asked += i32::from(again);
                let rows = if again { ghosts.clone() } else { Vec::new() };
                Ok::<_, Infallible>(Ghosts { rows, ..Ghosts::default() })
            };
            rewrites.judge(row, Some(next), false, given).unwrap()
        };
        for row in &said {
            assert_eq!(judge(row, row.timestamp + 1.0), Verdict::New);
        }
        for n in ROWS + 1..=ROWS * (WAVES + 1) {
            let original = (n - 1) % ROWS + 1;
            let copy = row(n.into(), &original.to_string(), at(if keeps_times { original } else { n }));
            let verdict = if keeps_times { Verdict::Repeated } else { Verdict::New };
            assert_eq!(judge(&copy, copy.timestamp + 1.0), verdict, "{n}");
        }
        assert_eq!(asked, expected);
    }
}

#[test]
fn once_time_goes_on_a_row_whose_time_runs_back_may_be_a_copy_again() {
    let mut rewrites = Rewrites::default();
    let none = |_, _| Ok::<_, Infallible>(Ghosts::default());
    for id in 1..=100_i32 {
        let row = row(id.into(), &id.to_string(), 1_764_000_000.0 - f64::from(id));
        assert_eq!(rewrites.judge(&row, None, false, none), Ok(Verdict::New));
    }
    let original = row(101, "now", 1_764_000_001.0);
    let behind = row(102, "later", 1_764_000_002.0);
    for row in [&original, &behind] {
        assert_eq!(rewrites.judge(row, None, false, none), Ok(Verdict::New));
    }
    let copy = Row { id: MessageId::new(103), ..original.clone() };
    let ghosts =
        |_, _| Ok::<_, Infallible>(Ghosts { rows: vec![Ghost::of(&original, true)], ..Ghosts::default() });
    assert_eq!(rewrites.judge(&copy, None, false, ghosts), Ok(Verdict::Repeated));
    assert!(rewrites.repeats_live());
}

#[test]
fn a_row_is_compared_with_those_alone_that_say_the_same() {
    let ghosts = (1..=1_000).map(|id| Ghost::of(&row(id, &(id % 500).to_string(), 0.0), true)).collect();
    let key = trace(&row(1, "7", 0.0)).key;
    let originals = Originals::new(ghosts);
    let places = |from| originals.of(key, from).map(|(at, _)| at).collect::<Vec<_>>();
    assert_eq!((places(0), places(7), places(507)), (vec![6, 506], vec![506], vec![]));
}

/// What `judge` makes of rows behind each other, where the rewrite that they may belong to brings back `originals`.
fn judged(originals: &[Row], rows: &[Row]) -> Vec<Verdict> {
    let ghosts: Vec<Ghost> = originals.iter().map(|row| Ghost::of(row, false)).collect();
    let mut rewrites = Rewrites::default();
    for row in originals {
        let none = |_, _| Ok::<_, Infallible>(Ghosts::default());
        assert_eq!(rewrites.judge(row, None, false, none), Ok(Verdict::New));
    }
    let next = |at: usize| rows.get(at + 1).map(|next| next.timestamp);
    let judge = |(at, row): (usize, &Row)| {
        let again = |_, _| Ok::<_, Infallible>(Ghosts { rows: ghosts.clone(), ..Ghosts::default() });
        rewrites.judge(row, next(at), false, again).unwrap()
    };
    rows.iter().enumerate().map(judge).collect()
}

/// The row `id` with a summary merged into it.
fn merged(id: i64, text: &str, timestamp: f64) -> Row {
    let framed = "[CONTEXT COMPACTION — REFERENCE ONLY] x\nthe sum\n--- END OF CONTEXT SUMMARY";
    let text = format!(
        "[PRIOR CONTEXT — for reference only; not a new message]\n{text}\n\n\
         [END OF PRIOR CONTEXT — COMPACTION SUMMARY BELOW]\n\n{framed}"
    );
    row(id, &text, timestamp)
}

#[test]
fn a_kept_tail_may_hold_old_times_and_new_ones() {
    let said = [row(1, "one", 10.0), row(2, "two", 20.0), row(3, "three", 30.0), row(4, "four", 40.0)];
    let times = [(30.0, 99.0), (98.999_999, 99.0)];
    for (third, fourth) in times {
        let kept = [merged(5, "two", 20.0), row(6, "three", third), row(7, "four", fourth)];
        let verdicts = [Verdict::Summary, Verdict::Repeated, Verdict::Repeated];
        assert_eq!(judged(&said, &kept), verdicts, "{third}");
        // What is typed behind it is new, whatever the words.
        for text in ["four", "one"] {
            let typed = [&kept[..], &[row(8, text, 120.0)]].concat();
            assert_eq!(judged(&said, &typed).last(), Some(&Verdict::New), "{text}");
        }
    }
}

#[test]
fn messages_that_hermes_joined_are_the_ones_that_were_said() {
    let said = [row(1, "one", 10.0), row(2, "two\n\nparts", 20.0), row(3, "three", 30.0)];
    let joined = |text: &str| judged(&said, &[row(4, text, 99.0), row(5, "three", 99.000_001)]);
    assert_eq!(joined("one\n\ntwo\n\nparts"), [Verdict::Repeated; 2]);
    assert_eq!(joined("one\n\ntwo\n\nmore"), [Verdict::New, Verdict::Repeated]);
}
