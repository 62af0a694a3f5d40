//! A conversation's accepted events, in words short enough to be compared at a glance.

use serde_json::Value;

/// One line for each event, in order:
/// `running 1`, `idle 1`, `1 user: text`, `1 meta: text`, `1 agent: text`, `1 call c1 terminal {}`, `1 output c1: text`,
/// `think: text`, `compaction: summary`, `compaction in_progress`, `title: text`, `model: name`, `interrupted 1`,
/// `todos: [x] one, [>] two, [ ] three`. The number is the turn's opener. A `running` that only says again what was
/// said is left out, and so is usage.
pub fn shown(events: &[Value]) -> Vec<String> {
    let mut running = None;
    let mut lines = Vec::new();
    for event in events {
        let data = &event["data"];
        match event["type"].as_str().unwrap_or_default() {
            "external_session_status" => {
                let line = format!("{} {}", word(&data["status"]), turn(data));
                let again = running.as_ref() == Some(&line);
                running = (data["status"] == "running").then(|| line.clone());
                if !again {
                    lines.push(line);
                }
            }
            "external_conversation_item" => lines.push(format!("{} {}", turn(data), item(data))),
            "external_output_reasoning_delta" => lines.push(format!("think: {}", word(&data["delta"]))),
            "compaction" => lines.push(format!("compaction: {}", word(&data["summary"]))),
            "external_session_usage" => {}
            "external_compaction_status" => lines.push(format!("compaction {}", word(&data["status"]))),
            "external_session_title" => lines.push(format!("title: {}", word(&data["title"]))),
            "external_model_change" => lines.push(format!("model: {}", word(&data["model"]))),
            "external_session_interrupted" => lines.push(format!("interrupted {}", turn(data))),
            "external_session_todos" => lines.push(format!("todos: {}", todos(data))),
            other => lines.push(other.to_owned()),
        }
    }
    lines
}

fn todos(data: &Value) -> String {
    let entry = |todo: &Value| {
        let mark = match word(&todo["status"]) {
            "completed" => "x",
            "in_progress" => ">",
            _ => " ",
        };
        format!("[{mark}] {}", word(&todo["content"]))
    };
    let list = data["todos"].as_array().cloned().unwrap_or_default();
    list.iter().map(entry).collect::<Vec<_>>().join(", ")
}

fn item(data: &Value) -> String {
    let item = &data["item_data"];
    match word(&data["item_type"]) {
        "message" => {
            let who = match (item["is_meta"].as_bool(), word(&item["role"])) {
                (Some(true), _) => "meta",
                (_, "assistant") => "agent",
                (_, role) => role,
            };
            let parts = item["content"].as_array().cloned().unwrap_or_default();
            let parts = parts.iter().map(|part| match word(&part["type"]) {
                "input_image" => format!("<{}>", word(&part["image_url"])),
                _ => word(&part["text"]).to_owned(),
            });
            format!("{who}: {}", parts.collect::<Vec<_>>().join(" "))
        }
        "function_call" => {
            format!("call {} {} {}", word(&item["call_id"]), word(&item["name"]), word(&item["arguments"]))
        }
        _ => format!("output {}: {}", word(&item["call_id"]), word(&item["output"])),
    }
}

/// The figures of every usage event: input, output, cached, and the model.
pub fn usages(events: &[Value]) -> Vec<String> {
    let usage = events.iter().filter(|event| event["type"] == "external_session_usage");
    let line = |event: &Value| {
        let data = &event["data"];
        format!(
            "{}/{}/{} {}",
            data["cumulative_input_tokens"],
            data["cumulative_output_tokens"],
            data["cumulative_cache_read_input_tokens"],
            word(&data["model"])
        )
    };
    usage.map(line).collect()
}

fn turn(data: &Value) -> &str {
    let id = word(&data["response_id"]);
    id.strip_prefix("hermes_turn_").unwrap_or(id)
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}
