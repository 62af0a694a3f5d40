//! Case J1: nothing secret leaves in any field.

use super::*;

/// One row of every kind, each with `text` in every field that has text.
fn rows_with(text: &str) -> Vec<Row> {
    let mut step = row(Role::Assistant, text);
    step.reasoning = Some(text.to_owned());
    let calls = serde_json::json!([{"id": "call_1", "name": text, "arguments": {"text": text}}]);
    step.tool_calls = Some(calls.to_string());
    let mut summary = row(Role::Assistant, text);
    summary.standing = Standing::Summary(Box::new(Compaction {
        summary: text.to_owned(),
        live: vec![(Role::User, text.to_owned())],
        token_count: 0,
        model: None,
    }));
    vec![row(Role::User, text), step, row(Role::Tool, text), summary]
}

/// Every text of an item.
fn fields(item: &Item) -> Vec<&str> {
    match item {
        Item::Reasoning { text } | Item::User { text, .. } | Item::Assistant { text } => vec![text],
        Item::FunctionCall { name, arguments, .. } => vec![name, arguments],
        Item::FunctionCallOutput { output, .. } => vec![output],
        Item::Compaction(compaction) => compaction
            .live
            .iter()
            .map(|(_, text)| text.as_str())
            .chain([compaction.summary.as_str()])
            .collect(),
    }
}

#[test]
fn j1_every_shape_is_masked_in_every_field() {
    for (secret, _) in egress::tests::samples() {
        let transform = Transform::new(&config::Transform::default());
        let off = config::Transform {
            egress: config::Egress { enabled: false, patterns: Vec::new() },
            ..Default::default()
        };
        let mut count = 0;
        for row in rows_with(&secret) {
            let Step::Row(open) = Transform::new(&off).apply(Reading::Row(row.clone())) else {
                panic!("no row")
            };
            assert!(open.items.iter().flat_map(fields).all(|text| !text.contains(egress::MASK)), "{secret}");
            let Step::Row(shown) = transform.apply(Reading::Row(row)) else { panic!("no row") };
            for text in shown.items.iter().flat_map(fields) {
                assert!(text.contains(egress::MASK), "{secret}: {text}");
                count += 1;
            }
            for item in &shown.items {
                if let Item::FunctionCall { arguments, .. } = item {
                    assert!(serde_json::from_str::<serde_json::Value>(arguments).unwrap().is_object());
                }
            }
        }
        assert_eq!(count, 8);
        assert_eq!(transform.egress().masked(), 8, "{secret}");
    }
}

#[test]
fn j1_a_secret_across_the_limit_is_masked_whole_and_ids_and_images_stay() {
    let secret = format!("ghp_{}", "Q3ZT7XK2M5PL4R6W".repeat(3));
    let config = config::Transform { max_output_chars: 300, ..Default::default() };
    let text = format!("{} {secret} {}", "x".repeat(280), "y".repeat(1000));
    let Item::FunctionCallOutput { output: shown, .. } = &with(&config, row(Role::Tool, &text)).items[0]
    else {
        panic!("no output")
    };
    assert!(shown.starts_with(&format!("{} ghp_{}\n[… ", "x".repeat(280), egress::MASK)), "{shown}");
    let mut result = row(Role::Tool, "done");
    result.tool_call_id = Some(secret.clone());
    assert_eq!(apply(result).items, [output(&secret, "done")]);
    let url = format!("data:image/png;base64,+{secret}");
    let stored = format!("\0json:[{{\"type\":\"image_url\",\"image_url\":{{\"url\":\"{url}\"}}}}]");
    let expected = Item::User { text: String::new(), images: vec![url], meta: false };
    assert_eq!(apply(row(Role::User, &stored)).items, [expected]);
}
