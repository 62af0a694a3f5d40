use super::*;
use crate::event::{
    Binding, CompactionState, Ending, Item, ModelUsage, Notes, Notice, Todo, TodoStatus, Usage,
};
use crate::ids::HermesSessionId;

fn row(id: i64, effect: TurnEffect, items: &[&str]) -> Step {
    let items = items.iter().map(|text| Item::Assistant { text: (*text).to_owned() }).collect();
    with_items(id, effect, items)
}

fn with_items(id: i64, effect: TurnEffect, items: Vec<Item>) -> Step {
    let counts_as_turn_end = effect == TurnEffect::Closes;
    let notes = Notes::default();
    Step::Row(RowItems { row: MessageId::new(id), trace: None, effect, counts_as_turn_end, items, notes })
}

/// An assistant row that calls these tools.
fn calls(id: i64, calls: &[&str]) -> Step {
    let call = |call: &&str| Item::FunctionCall {
        call_id: (*call).to_owned(),
        name: "terminal".to_owned(),
        arguments: "{}".to_owned(),
    };
    with_items(id, TurnEffect::Continues, calls.iter().map(call).collect())
}

fn result(id: i64, call: &str) -> Step {
    let item = Item::FunctionCallOutput { call_id: call.to_owned(), output: String::new() };
    with_items(id, TurnEffect::Continues, vec![item])
}

fn ending(step: Step, ending: Ending) -> Step {
    match step {
        Step::Row(row) => Step::Row(RowItems { notes: Notes { ending, todos: None }, ..row }),
        other => other,
    }
}

/// `R7` running, `I7` idle, `text@7` an item, `>7` the cursor alone; each with the mark behind it.
fn show(deliveries: &[Delivery]) -> Vec<String> {
    let short = |id: &ResponseId| id.as_str().replace("hermes_turn_", "");
    let one = |delivery: &Delivery| {
        let post = match &delivery.post {
            Some(Post::Running { turn }) => format!("R{}", short(turn)),
            Some(Post::Idle { turn, .. }) => format!("I{}", short(turn)),
            Some(Post::Item { item: Item::Assistant { text }, turn, .. }) => {
                format!("{text}@{}", short(turn))
            }
            Some(Post::Item { item: Item::FunctionCall { call_id, .. }, turn, .. }) => {
                format!("call {call_id}@{}", short(turn))
            }
            Some(Post::Item { item: Item::FunctionCallOutput { call_id, .. }, turn, .. }) => {
                format!("{call_id}@{}", short(turn))
            }
            Some(Post::Item { item, turn, .. }) => format!("{}@{}", item.name(), short(turn)),
            Some(Post::Notice(Notice::Interrupted { turn })) => format!("X{}", short(turn)),
            Some(Post::Notice(Notice::Compaction(state))) => format!("{state:?}"),
            Some(Post::Notice(Notice::Title(title))) => format!("title {title}"),
            Some(Post::Notice(Notice::Model(model))) => format!("model {model}"),
            Some(Post::Notice(Notice::Todos(todos))) => format!("{} todos", todos.len()),
            Some(Post::Usage(usage)) => {
                let model = usage.model.as_deref().unwrap_or_default();
                format!("{}/{} {model}", usage.input_tokens, usage.output_tokens)
            }
            None => String::new(),
        };
        let mark = delivery.mark.as_ref().map_or_else(String::new, |mark| {
            let items = mark.items.map_or_else(String::new, |n| format!(".{n}"));
            let turn = mark.turn.as_ref().map_or_else(String::new, |turn| {
                format!(" {}{}", if turn.closed { "owes" } else { "in" }, short(&turn.id))
            });
            format!(">{}{items}{turn}", mark.row)
        });
        post + &mark
    };
    deliveries.iter().map(one).collect()
}

fn all(turns: &mut Turns, steps: Vec<Step>) -> Vec<String> {
    steps.into_iter().flat_map(|step| show(&turns.apply(step))).collect()
}

#[test]
fn a_turn_runs_from_its_user_row_to_the_answer_and_is_idle_behind_it() {
    let steps = vec![
        row(1, TurnEffect::Opens, &["hi"]),
        row(2, TurnEffect::Continues, &["a", "b"]),
        row(3, TurnEffect::Continues, &["out"]),
        row(4, TurnEffect::Closes, &["bye"]),
    ];
    let expected = ["hi@1>1 in1", "R1", "a@1>2.1 in1", "b@1>2 in1", "out@1>3 in1", "bye@1>4 owes1", "I1>4"];
    assert_eq!(all(&mut Turns::new(), steps), expected);
}

#[test]
fn three_turns_in_one_read_give_three_idle_edges_each_behind_its_own_items() {
    let steps = (0..3)
        .flat_map(|n| [row(2 * n + 1, TurnEffect::Opens, &["q"]), row(2 * n + 2, TurnEffect::Closes, &["a"])])
        .collect();
    let shown = all(&mut Turns::new(), steps);
    let edges: Vec<_> = shown.iter().filter(|s| s.starts_with(['R', 'I'])).map(|s| &s[..2]).collect();
    assert_eq!(edges, ["R1", "I1", "R3", "I3", "R5", "I5"]);
}

#[test]
fn an_empty_final_answer_closes_the_turn() {
    let steps = vec![row(1, TurnEffect::Opens, &["q"]), row(2, TurnEffect::Closes, &[])];
    assert_eq!(all(&mut Turns::new(), steps), ["q@1>1 in1", "R1", "I1>2"]);
}

#[test]
fn a_repeat_moves_the_cursor_and_leaves_the_turn_open() {
    let steps = vec![
        row(1, TurnEffect::Opens, &["q"]),
        row(2, TurnEffect::None, &[]),
        row(3, TurnEffect::Closes, &["a"]),
    ];
    assert_eq!(all(&mut Turns::new(), steps), ["q@1>1 in1", "R1", ">2 in1", "a@1>3 owes1", "I1>3"]);
}

#[test]
fn a_start_that_was_missed_is_recovered_from_the_first_row_seen() {
    let steps = vec![row(5, TurnEffect::Continues, &["a"]), row(6, TurnEffect::Closes, &["b"])];
    assert_eq!(all(&mut Turns::new(), steps), ["R5", "a@5>5 in5", "b@5>6 owes5", "I5>6"]);
}

fn bound(last: i64, partial: Option<(i64, u32)>, turn: Option<(i64, bool)>) -> Step {
    let resume = Resume {
        begins: false,
        last: MessageId::new(last),
        partial: partial.map(|(row, items)| (MessageId::new(row), items)),
        turn: turn.map(|(id, closed)| OpenTurn { id: ResponseId::for_turn(MessageId::new(id)), closed }),
        closed_turns: Some(0),
        waiting: Vec::new(),
    };
    Step::Bound(Binding { session: HermesSessionId::new("s"), resume })
}

#[test]
fn a_restart_inside_a_row_goes_on_with_its_next_item() {
    let steps = vec![
        bound(1, Some((2, 1)), Some((1, false))),
        row(2, TurnEffect::Continues, &["a", "b", "c"]),
        row(3, TurnEffect::Closes, &["d"]),
    ];
    let expected = ["R1", "b@1>2.2 in1", "c@1>2 in1", "d@1>3 owes1", "I1>3"];
    assert_eq!(all(&mut Turns::new(), steps), expected);
}

#[test]
fn a_row_that_became_shorter_than_what_was_delivered_of_it_is_passed() {
    let steps = vec![bound(1, Some((2, 3)), Some((1, false))), row(2, TurnEffect::Continues, &["a"])];
    assert_eq!(all(&mut Turns::new(), steps), ["R1", ">2 in1"]);
}

#[test]
fn an_idle_edge_that_was_owed_at_the_stop_is_delivered_at_the_start() {
    let steps = vec![bound(4, None, Some((1, true))), row(5, TurnEffect::Opens, &["q"])];
    assert_eq!(all(&mut Turns::new(), steps), ["I1>4", "q@5>5 in5", "R5"]);
}

#[test]
fn usage_is_told_once_while_it_stays_the_same() {
    let usage = Usage { input_tokens: 5, ..Usage::default() };
    let mut turns = Turns::new();
    assert_eq!(turns.apply(Step::Usage(usage.clone())).len(), 1);
    assert_eq!(turns.apply(Step::Usage(usage.clone())).len(), 0);
    assert_eq!(turns.apply(Step::Usage(Usage { input_tokens: 6, ..usage })).len(), 1);
}

#[test]
fn f7_a_turn_that_no_row_closed_is_settled_by_the_next_user_row() {
    let steps = vec![
        row(1, TurnEffect::Opens, &["never answered"]),
        row(2, TurnEffect::Opens, &["again"]),
        calls(3, &["a"]),
        result(4, "a"),
        row(5, TurnEffect::Opens, &["and again"]),
    ];
    let expected = [
        "never answered@1>1 in1",
        "R1",
        "I1",
        "again@2>2 in2",
        "R2",
        "call a@2>3 in2",
        "a@2>4 in2",
        "I2",
        "and again@5>5 in5",
        "R5",
    ];
    assert_eq!(all(&mut Turns::new(), steps), expected);
}

#[test]
fn a_user_row_of_another_process_does_not_settle_a_turn_that_waits_for_its_tools() {
    let steps = vec![
        row(1, TurnEffect::Opens, &["q"]),
        calls(2, &["a", "b"]),
        result(3, "a"),
        row(4, TurnEffect::Opens, &["elsewhere"]),
        result(5, "b"),
        row(6, TurnEffect::Closes, &["done"]),
        row(7, TurnEffect::Closes, &["done too"]),
    ];
    let expected = [
        "q@1>1 in1",
        "R1",
        "call a@1>2.1 in1",
        "call b@1>2 in1",
        "a@1>3 in1",
        "elsewhere@4>4 in4",
        "R4",
        "b@1>5 in4",
        "done@4>6 owes4",
        "I1",
        "I4>6",
        "R7",
        "done too@7>7 owes7",
        "I7>7",
    ];
    assert_eq!(all(&mut Turns::new(), steps), expected);
}

#[test]
fn the_model_of_a_turn_that_was_set_aside_speaks_while_the_open_one_waits_for_its_tools() {
    let steps = vec![
        row(1, TurnEffect::Opens, &["q"]),
        calls(2, &["a"]),
        row(3, TurnEffect::Opens, &["elsewhere"]),
        calls(4, &["b"]),
        result(5, "a"),
        calls(6, &["c"]),
        result(7, "c"),
        row(8, TurnEffect::Closes, &["done"]),
        result(9, "b"),
        row(10, TurnEffect::Closes, &["done too"]),
    ];
    let expected = [
        "q@1>1 in1",
        "R1",
        "call a@1>2 in1",
        "elsewhere@3>3 in3",
        "R3",
        "call b@3>4 in3",
        "a@1>5 in3",
        "call c@1>6 in3",
        "c@1>7 in3",
        "done@1>8 in3",
        "I1>8 in3",
        "R3",
        "b@3>9 in3",
        "done too@3>10 owes3",
        "I3>10",
    ];
    assert_eq!(all(&mut Turns::new(), steps), expected);
}

#[test]
fn a_result_that_comes_after_its_turn_was_settled_takes_the_turn_up_again() {
    let mut turns = Turns::new();
    let before = vec![
        row(1, TurnEffect::Opens, &["q"]),
        calls(2, &["a"]),
        row(3, TurnEffect::Opens, &["elsewhere"]),
        row(4, TurnEffect::Closes, &["done"]),
    ];
    assert!(all(&mut turns, before).ends_with(&["I1".to_owned(), "I3>4".to_owned()]));
    assert_eq!(turns.running(), None);
    let after = vec![result(5, "a"), row(6, TurnEffect::Closes, &["late"])];
    assert_eq!(all(&mut turns, after), ["R1", "a@1>5 in1", "late@1>6 owes1", "I1>6"]);
}

#[test]
fn turns_that_are_set_aside_are_not_remembered_without_end() {
    let steps =
        (0..20).flat_map(|n| [row(2 * n + 1, TurnEffect::Opens, &["q"]), calls(2 * n + 2, &["same", "x"])]);
    let mut turns = Turns::new();
    let shown = all(&mut turns, steps.collect());
    assert_eq!(shown.iter().filter(|line| line.starts_with('I')).count(), 11);
}

#[test]
fn the_end_of_the_session_settles_the_turn_and_ends_its_running() {
    let mut turns = Turns::new();
    let steps = vec![row(1, TurnEffect::Opens, &["q"]), calls(2, &["a"]), Step::Beside(Beside::Ended)];
    assert_eq!(all(&mut turns, steps), ["q@1>1 in1", "R1", "call a@1>2 in1", "I1"]);
    assert_eq!(turns.running(), None);
    assert_eq!(all(&mut turns, vec![Step::Beside(Beside::Ended)]), [""; 0]);
}

#[test]
fn rows_that_come_after_the_end_go_on_with_their_turn() {
    let opening = || vec![row(1, TurnEffect::Opens, &["q"]), Step::Beside(Beside::Ended)];
    let mut turns = Turns::new();
    all(&mut turns, opening());
    let steps = vec![row(2, TurnEffect::Closes, &["a"])];
    assert_eq!(all(&mut turns, steps), ["R1", "a@1>2 owes1", "I1>2"]);

    let mut turns = Turns::new();
    all(&mut turns, opening());
    let steps = vec![row(2, TurnEffect::Opens, &["q2"]), row(3, TurnEffect::Closes, &["a2"])];
    assert_eq!(all(&mut turns, steps), ["q2@2>2 in2", "R2", "a2@2>3 owes2", "I2>3"]);
}

#[test]
fn a_turn_that_was_settled_before_a_restart_is_not_called_running_after_it() {
    let mut turns = Turns::new();
    turns.recall(Some(ResponseId::for_turn(MessageId::new(1))), None);
    assert_eq!(all(&mut turns, vec![bound(1, None, None)]), [""; 0]);
    assert_eq!(all(&mut turns, vec![result(2, "a")]), ["R1", "a@1>2 in1"]);
}

#[test]
fn an_interrupted_turn_is_said_to_be_before_it_is_idle() {
    let steps = vec![
        row(1, TurnEffect::Opens, &["q"]),
        ending(row(2, TurnEffect::Closes, &["stopped"]), Ending::Interrupted),
    ];
    assert_eq!(all(&mut Turns::new(), steps), ["q@1>1 in1", "R1", "stopped@1>2 owes1", "X1", "I1>2"]);
}

#[test]
fn an_answer_without_a_reason_is_interrupted_only_where_more_speaks_for_it() {
    let asked = |id| row(id, TurnEffect::Opens, &[]);
    let ends = |id, how| ending(row(id, TurnEffect::Closes, &[]), how);
    let cut = |steps: Vec<Step>| all(&mut Turns::new(), steps).iter().any(|line| line.starts_with('X'));
    // No answer here ever had a reason.
    assert!(!cut(vec![asked(1), ends(2, Ending::Unfinished)]));
    assert!(cut(vec![asked(1), ends(2, Ending::Finished), asked(3), ends(4, Ending::Unfinished)]));
    // Behind tools it may as well be what Hermes says at its limit.
    let tools = |how| {
        vec![
            asked(1),
            ends(2, Ending::Finished),
            asked(3),
            calls(4, &["a", "b"]),
            ending(result(5, "a"), how),
        ]
    };
    let end = || [result(6, "b"), ends(7, Ending::Unfinished)];
    assert!(!cut(tools(Ending::Silent).into_iter().chain(end()).collect()));
    assert!(cut(tools(Ending::ToolInterrupted).into_iter().chain(end()).collect()));
    let more = || [calls(8, &["c"]), result(9, "c"), ends(10, Ending::Unfinished)];
    assert!(!cut(tools(Ending::ToolInterrupted).into_iter().chain(more()).collect()));
}

fn boundary(id: i64) -> Step {
    let compaction =
        crate::event::Compaction { summary: "s".to_owned(), live: Vec::new(), token_count: 0, model: None };
    with_items(id, TurnEffect::None, vec![Item::Compaction(compaction)])
}

#[test]
fn a_compaction_is_completed_with_its_boundary_and_failed_without_one() {
    let begun = || Step::Beside(Beside::Compacting);
    let over = || Step::Beside(Beside::CompactionOver);
    let steps = vec![row(1, TurnEffect::Opens, &["q"]), begun(), boundary(2), over()];
    let expected = ["q@1>1 in1", "R1", "InProgress", "compaction@1>2 in1", "Completed"];
    let mut turns = Turns::new();
    assert_eq!(all(&mut turns, steps), expected);
    assert_eq!(all(&mut turns, vec![begun(), over()]), ["InProgress", "Failed"]);
    // Nobody was told that it runs.
    assert_eq!(all(&mut turns, vec![boundary(3), over()]), ["compaction@1>3 in1"]);
    let state = Notice::Compaction(CompactionState::InProgress);
    assert_eq!(turns.apply(begun()), [Delivery { post: Some(Post::Notice(state)), mark: None }]);
}

#[test]
fn a_title_is_told_once_also_over_a_restart() {
    let title = |text: &str| Step::Beside(Beside::Title(text.to_owned()));
    let mut turns = Turns::new();
    assert_eq!(all(&mut turns, vec![title("A"), title("A"), title("B")]), ["title A", "title B"]);
    turns.recall(None, Some("B".to_owned()));
    assert_eq!(all(&mut turns, vec![title("B"), title("A")]), ["title A"]);
}

#[test]
fn a_task_list_follows_its_output_and_is_told_when_it_has_changed() {
    let todos = |id, n: usize| {
        let entry = |n: usize| Todo { content: n.to_string(), status: TodoStatus::Pending };
        let Step::Row(row) = result(id, "a") else { unreachable!("made as a row") };
        let todos = Some((0..n).map(entry).collect());
        Step::Row(RowItems { notes: Notes { todos, ..Notes::default() }, ..row })
    };
    let steps = vec![row(1, TurnEffect::Opens, &["q"]), todos(2, 1), todos(3, 1), todos(4, 0)];
    let expected = ["q@1>1 in1", "R1", "a@1>2 in1", "1 todos", "a@1>3 in1", "a@1>4 in1", "0 todos"];
    assert_eq!(all(&mut Turns::new(), steps), expected);
}

fn used(model: &str, input: u64, output: u64, models: &[(&str, u64, u64)]) -> Step {
    let part = |(model, input_tokens, output_tokens): &(&str, u64, u64)| ModelUsage {
        model: (*model).to_owned(),
        input_tokens: *input_tokens,
        output_tokens: *output_tokens,
        cached_tokens: 0,
        cost_usd: 0.0,
    };
    Step::Usage(Usage {
        model: Some(model.to_owned()),
        input_tokens: input,
        output_tokens: output,
        cached_tokens: 0,
        cost_usd: Some(0.0),
        models: models.iter().map(part).collect(),
    })
}

#[test]
fn a_change_of_model_is_told_and_its_first_sight_is_not() {
    let steps = vec![used("m", 1, 1, &[]), used("m", 2, 2, &[]), used("n", 3, 3, &[])];
    assert_eq!(all(&mut Turns::new(), steps), ["1/1 m", "2/2 m", "model n", "3/3 n"]);
}

#[test]
fn what_another_model_has_used_goes_to_its_own_account() {
    let steps = vec![
        used("m", 10, 1, &[("m", 10, 1)]),
        used("m", 35, 6, &[("m", 30, 4), ("small", 5, 2)]),
        used("m", 45, 8, &[("m", 40, 6), ("small", 5, 2)]),
    ];
    assert_eq!(all(&mut Turns::new(), steps), ["10/1 m", "15/3 small", "35/6 m", "45/8 m"]);
}

mod taken_back;
