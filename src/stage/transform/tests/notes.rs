use super::*;
use crate::event::{Ending, Todo, TodoStatus};

fn todo_row(content: &str) -> Row {
    let mut answer = row(Role::Tool, content);
    answer.tool_name = Some("todo".to_owned());
    answer.tool_call_id = Some("c".to_owned());
    answer
}

#[test]
fn the_todo_tools_answer_is_the_task_list_without_what_was_cancelled() {
    let list = r#"{"todos": [{"id": "1", "content": " one ", "status": "completed"},
        {"id": "2", "content": "two", "status": "in_progress"}, {"id": "3", "content": "three", "status": "cancelled"},
        {"id": "4", "content": "four", "status": "pending"}, {"id": "5"}, 6], "summary": {"total": 4}}"#;
    let shown = apply(todo_row(list));
    let todo = |content: &str, status| Todo { content: content.to_owned(), status };
    let right = vec![
        todo("one", TodoStatus::Completed),
        todo("two", TodoStatus::InProgress),
        todo("four", TodoStatus::Pending),
    ];
    assert_eq!(shown.notes.todos, Some(right));
    assert_eq!(shown.items, [output("c", list)]);
    assert_eq!(apply(todo_row(r#"{"todos": []}"#)).notes.todos, Some(vec![]));
}

#[test]
fn only_a_whole_answer_of_the_todo_tool_is_a_task_list() {
    for broken in ["", "{}", r#"{"error": "todos must be a list"}"#, r#"{"todos": 1}"#, r#"{"todos": [{"#] {
        assert_eq!(apply(todo_row(broken)).notes.todos, None, "{broken}");
    }
    let mut other = todo_row(r#"{"todos": []}"#);
    other.tool_name = Some("terminal".to_owned());
    assert_eq!(apply(other).notes.todos, None);
    let mut copy = todo_row(r#"{"todos": []}"#);
    copy.standing = Standing::Repeated;
    assert_eq!(apply(copy).notes.todos, None);
}

#[test]
fn a_task_list_stays_within_what_the_server_takes() {
    let entries: Vec<String> = (0..256)
        .map(|n| format!(r#"{{"id": "{n}", "content": "{}", "status": "pending"}}"#, "語".repeat(4000)))
        .collect();
    let todos = apply(todo_row(&format!(r#"{{"todos": [{}]}}"#, entries.join(",")))).notes.todos.unwrap();
    let bytes: usize = todos.iter().map(|todo| 2 * todo.content.len() + 60).sum();
    assert!(todos.len() == 100 && bytes <= 256 << 10, "{} entries, {bytes} bytes", todos.len());
}

#[test]
fn how_a_row_says_that_its_turn_ends() {
    let mut interrupted = row(Role::Assistant, "Operation interrupted.");
    assert_eq!(apply(interrupted.clone()).notes.ending, Ending::Interrupted);
    interrupted.finish_reason = Some("stop".to_owned());
    assert_eq!(apply(interrupted).notes.ending, Ending::Finished);
    assert_eq!(apply(row(Role::Assistant, "Once upon a")).notes.ending, Ending::Unfinished);
    let apology = row(Role::Assistant, "I apologize, but I encountered repeated errors: x");
    assert_eq!(apply(apology).notes.ending, Ending::Silent);
    let cut = row(Role::Tool, r#"{"output": "\n[Command interrupted]", "exit_code": 130}"#);
    assert_eq!(apply(cut).notes.ending, Ending::ToolInterrupted);
    assert_eq!(apply(row(Role::User, "Operation interrupted.")).notes.ending, Ending::Silent);
}

#[test]
fn a_task_list_that_a_compaction_carries_over_opens_no_turn() {
    let stored =
        "[Your active task list was preserved across context compression]\n- [>] 1. one (in_progress)";
    let shown = apply(row(Role::User, stored));
    assert_eq!((shown.effect, shown.items), (TurnEffect::None, vec![user(stored, true)]));
}

#[test]
fn a_title_is_one_line_that_the_server_takes() {
    let title = |text: &str| {
        let told = Reading::Beside(Beside::Title(text.to_owned()));
        match Transform::new(&config::Transform::default()).apply(told) {
            Step::Beside(Beside::Title(title)) => title,
            other => panic!("a title became {other:?}"),
        }
    };
    assert_eq!(title(" one\n two\t three "), "one two three");
    assert_eq!(title(&"語".repeat(300)), "語".repeat(200));
}

#[test]
fn secrets_in_a_title_and_in_a_task_list_are_masked() {
    let secret = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";
    let told = Reading::Beside(Beside::Title(format!("use {secret}")));
    let title = format!("{:?}", Transform::new(&config::Transform::default()).apply(told));
    let list = format!(r#"{{"todos": [{{"id": "1", "content": "use {secret}", "status": "pending"}}]}}"#);
    let todos = format!("{:?}", apply(todo_row(&list)).notes.todos);
    for shown in [title, todos] {
        assert!(shown.contains("use ") && !shown.contains(secret), "{shown}");
    }
}
