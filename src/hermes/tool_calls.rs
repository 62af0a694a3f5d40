//! What stands in `messages.tool_calls`: a JSON list of calls, in the shapes of several model APIs, sometimes broken.

use serde_json::{Deserializer, Map, Value};

use super::json;
use crate::ids::MessageId;

/// The name of a call that has none, or that could not be read.
const UNKNOWN: &str = "unknown";

/// The tool by which the model asks the person something. Its result is the answer.
const ASKS: &str = "clarify";

/// Whether a call of this tool waits for the person.
#[must_use]
pub fn waits_for_the_person(name: &str) -> bool {
    name == ASKS
}

/// One call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// What pairs it with its result.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// Its arguments, as stored where they are a string; for a call that could not be read, what is left of it.
    pub arguments: String,
}

/// Reads the calls of a row. `null`, `[]` and blank text are no calls.
///
/// Of a broken list, the complete calls at its front are taken, and what follows stands as one call of the
/// tool `unknown`, so that nothing is lost and nothing invented.
#[must_use]
pub fn parse(stored: Option<&str>, row: MessageId) -> Vec<ToolCall> {
    let Some(stored) = stored.map(str::trim).filter(|stored| !stored.is_empty()) else {
        return Vec::new();
    };
    let raw = json::mend_surrogates(stored);
    let (values, broken) = match serde_json::from_str(&raw) {
        Ok(value) => (listed(value), None),
        Err(_) => front(&raw),
    };
    let mut calls = Vec::with_capacity(values.len());
    for value in values {
        calls.push(read(value, row, calls.len()));
    }
    if let Some(left) = broken {
        calls.push(ToolCall {
            call_id: made_up_id(row, calls.len()),
            name: UNKNOWN.to_owned(),
            arguments: left.to_owned(),
        });
    }
    calls
}

/// Whether a Python forwarder finds calls in the row: it takes a list alone, and one it cannot parse for none.
/// Its count of turns depends on it.
#[must_use]
pub fn is_well_formed_list(stored: Option<&str>) -> bool {
    stored.is_some_and(|stored| {
        serde_json::from_str(&json::mend_surrogates(stored))
            .is_ok_and(|value: Value| value.as_array().is_some_and(|calls| !calls.is_empty()))
    })
}

/// The id that pairs a call with its result. Where Hermes joined the id of a call and that of a response
/// item by `|`, the call's alone counts. `None` where nothing is left.
#[must_use]
pub fn pairing_id(stored: &str) -> Option<&str> {
    let id = stored.split_once('|').map_or(stored, |(call, _)| call).trim();
    (!id.is_empty()).then_some(id)
}

/// The calls in a document that is whole: a list, a lone call, or either encoded once more.
fn listed(value: Value) -> Vec<Value> {
    match value {
        Value::Array(calls) => calls,
        Value::Null => Vec::new(),
        Value::Object(call) if call.is_empty() => Vec::new(),
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(Value::Array(calls)) => calls,
            Ok(call @ Value::Object(_)) => vec![call],
            _ if text.trim().is_empty() => Vec::new(),
            _ => vec![Value::String(text)],
        },
        other => vec![other],
    }
}

/// The complete calls at the front of a broken list, and what follows them.
fn front(raw: &str) -> (Vec<Value>, Option<&str>) {
    let mut calls = Vec::new();
    let Some(mut rest) = raw.strip_prefix('[') else {
        return (calls, Some(raw));
    };
    loop {
        let mut stream = Deserializer::from_str(rest).into_iter::<Value>();
        let Some(Ok(call)) = stream.next() else { break };
        // A bare number or word may go on behind the cut, and one behind a call is no call.
        if !call.is_object() {
            break;
        }
        rest = rest.get(stream.byte_offset()..).unwrap_or_default().trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        calls.push(call);
    }
    let nothing_left = rest.trim_matches(|c: char| c.is_whitespace() || matches!(c, ',' | ']')).is_empty();
    // Of a list that never began, the bracket is all there is to show.
    let left = if calls.is_empty() { Some(raw) } else { Some(rest).filter(|_| !nothing_left) };
    (calls, left)
}

fn read(value: Value, row: MessageId, index: usize) -> ToolCall {
    let Value::Object(call) = value else {
        return ToolCall {
            call_id: made_up_id(row, index),
            name: UNKNOWN.to_owned(),
            arguments: as_text(value),
        };
    };
    let call_id = ["call_id", "id"]
        .iter()
        .find_map(|key| call.get(*key).and_then(Value::as_str).and_then(pairing_id))
        .map_or_else(|| made_up_id(row, index), str::to_owned);
    let function = call.get("function").and_then(Value::as_object).unwrap_or(&call);
    let name = text_of(function, "name").or_else(|| text_of(&call, "name")).map(str::to_owned);
    let arguments = ["arguments", "input"]
        .iter()
        .find_map(|key| function.get(*key).or_else(|| call.get(*key)))
        .filter(|arguments| !arguments.is_null())
        .cloned();
    match (name, arguments) {
        (Some(name), Some(arguments)) => ToolCall { call_id, name, arguments: as_text(arguments) },
        (Some(name), None) => ToolCall { call_id, name, arguments: "{}".to_owned() },
        (None, Some(arguments)) => {
            ToolCall { call_id, name: UNKNOWN.to_owned(), arguments: as_text(arguments) }
        }
        // Neither: the whole call is all that can be said of it.
        (None, None) => {
            ToolCall { call_id, name: UNKNOWN.to_owned(), arguments: as_text(Value::Object(call)) }
        }
    }
}

fn text_of<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    fields.get(key)?.as_str().map(str::trim).filter(|text| !text.is_empty())
}

/// A string as it is, anything else as compact JSON.
fn as_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// The same for the same row at every read, so that a restart does not show the call under another id.
fn made_up_id(row: MessageId, index: usize) -> String {
    format!("hermes_call_{row}_{index}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn calls(stored: &str) -> Vec<(String, String, String)> {
        parse(Some(stored), MessageId::new(7)).into_iter().map(|c| (c.call_id, c.name, c.arguments)).collect()
    }

    fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
        (id.to_owned(), name.to_owned(), arguments.to_owned())
    }

    #[test]
    fn calls_as_hermes_writes_them() {
        let stored = r#"[{"id": "call_6_0", "call_id": "call_6_0", "response_item_id": "fc_6_0", "type": "function", "function": {"name": "read_file", "arguments": "{\"path\":\"a.txt\"}"}}, {"id": "call_6_2", "call_id": "call_6_2", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": "}}]"#;
        assert_eq!(
            calls(stored),
            [
                call("call_6_0", "read_file", r#"{"path":"a.txt"}"#),
                call("call_6_2", "terminal", r#"{"command": "#)
            ]
        );
        assert!(is_well_formed_list(Some(stored)));
    }

    #[test]
    fn nothing_and_empty_lists_are_no_calls() {
        assert_eq!(parse(None, MessageId::ZERO), []);
        for stored in ["", "  ", "null", "[]", "{}", "\"\"", "\"[]\""] {
            assert_eq!(calls(stored), [], "{stored}");
            assert!(!is_well_formed_list(Some(stored)));
        }
    }

    #[test]
    fn other_shapes_and_missing_parts_still_make_calls() {
        assert_eq!(
            calls(
                r#"[{"name":"a","arguments":{"x": 1}},{"id":"i|fc_1","function":{"name":"b"}},{"call_id":"c","id":"i","function":{"arguments":"{}"}},{"call_id":"","id":"d","type":"odd"},"text",null]"#
            ),
            [
                call("hermes_call_7_0", "a", r#"{"x":1}"#),
                call("i", "b", "{}"),
                call("c", "unknown", "{}"),
                call("d", "unknown", r#"{"call_id":"","id":"d","type":"odd"}"#),
                call("hermes_call_7_4", "unknown", "text"),
                call("hermes_call_7_5", "unknown", "null"),
            ]
        );
        assert_eq!(calls(r#"{"id":"a","function":{"name":"f"}}"#), [call("a", "f", "{}")]);
        assert_eq!(calls(r#""[{\"id\":\"a\",\"name\":\"f\"}]""#), [call("a", "f", "{}")]);
    }

    #[test]
    fn a_truncated_list_keeps_its_complete_calls_and_shows_the_rest_as_it_is() {
        assert_eq!(
            calls(r#"[{"id":"a","function":{"name":"f","arguments":"{}"}}, {"id":"b","func"#),
            [call("a", "f", "{}"), call("hermes_call_7_1", "unknown", r#"{"id":"b","func"#)]
        );
        assert_eq!(calls(r#"[{"id":"a","name":"f"},"#), [call("a", "f", "{}")]);
        assert_eq!(calls("[{"), [call("hermes_call_7_0", "unknown", "[{")]);
        assert_eq!(calls("not json"), [call("hermes_call_7_0", "unknown", "not json")]);
        assert!(!is_well_formed_list(Some("[{")));
    }

    #[test]
    fn e1_a_lone_surrogate_in_the_arguments_does_not_break_the_call() {
        assert_eq!(calls(r#"[{"id":"a","name":"f","arguments":"\ud800"}]"#), [call("a", "f", "\u{FFFD}")]);
    }

    proptest! {
        #[test]
        fn any_text_but_an_empty_list_is_at_least_one_call(stored in r#"[\[\]{}":,a-z0-9\\]{0,40}"#) {
            let calls = parse(Some(&stored), MessageId::new(1));
            prop_assert!(calls.iter().all(|call| !call.call_id.is_empty() && !call.name.is_empty()));
            prop_assert!(!is_well_formed_list(Some(&stored)) || !calls.is_empty());
        }
    }
}
