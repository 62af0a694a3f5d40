//! What Hermes does to its rows beside appending to them.

use serde_json::{Value, json};

use super::play::{Copy, Entry, Play};
use crate::support::hermes_message::merged_into;

impl Play<'_> {
    /// The live rows after a compaction: some of the head, the summary, some of the tail.
    fn compacted(&mut self) -> Option<Vec<Entry>> {
        let head = self.below(3);
        let mut tail = 1 + self.below(4);
        let len = self.live.len();
        // A result is not kept without its call.
        while tail < len && self.live[len - tail].is("tool") {
            tail += 1;
        }
        if head + tail >= len {
            return None;
        }
        let text = format!("sum {}", self.number());
        let framed = self.writer.framed(&text);
        self.note(&format!("compaction {text}: {head} and {tail} of {len}"));
        let boundary = self.reference.sum_up(vec![format!("compaction: {text}")]);
        let mut after: Vec<Entry> = self.live[..head].to_vec();
        let mut kept = self.live[len - tail..].to_vec();
        if self.version >= (0, 19)
            && self.random.happens(25)
            && kept[0].boundary.is_none()
            && !is_summary(&kept[0])
        {
            let old = kept[0].message["content"].as_str().unwrap().to_owned();
            kept[0].message["content"] = json!(merged_into(&old, &framed));
            kept[0].boundary = Some(boundary);
            self.note("merged");
        } else {
            let role = if self.version >= (0, 20) { "user" } else { "assistant" };
            let message = json!({"role": role, "content": framed});
            after.push(Entry { said: boundary, boundary: None, message });
        }
        after.extend(kept);
        Some(after)
    }

    pub(super) fn compact(&mut self) {
        // Before, Hermes could but fork.
        if self.version < (0, 18) {
            return;
        }
        let Some(after) = self.compacted() else { return };
        self.later(500, 5_000);
        self.writer.archive_and_compact(&self.session, &messages(&after));
        self.reference.archive(said(&after));
        self.live = after;
    }

    pub(super) fn fork(&mut self) {
        let Some(after) = self.compacted() else { return };
        self.later(500, 5_000);
        let child = format!("fork{}", self.number());
        self.note(&format!("forked into {child}"));
        self.writer.call(
            &json!({"do": "fork", "parent": self.session, "child": child, "messages": messages(&after)}),
        );
        self.reference.leave_behind(said(&after));
        self.live = after;
        self.session = child;
        self.taken_back = false;
    }

    /// The places of what the person typed, among the live rows.
    fn typed(&self) -> Vec<usize> {
        let typed = self.live.iter().enumerate();
        typed
            .filter(|(_, e)| e.is("user") && e.boundary.is_none() && !is_summary(e))
            .map(|(at, _)| at)
            .collect()
    }

    pub(super) fn undo(&mut self) {
        let typed = self.typed();
        if self.version < (0, 17) || typed.len() < 2 {
            return;
        }
        self.catch_up();
        let at = typed[typed.len() - 1 - self.below(2).min(typed.len() - 1)];
        let select =
            "SELECT id FROM messages WHERE session_id = ? AND active = 1 ORDER BY id LIMIT 1 OFFSET ?";
        let id = self.writer.call(&json!({"do": "sql", "script": [[select, [self.session, at]]]}))[0][0][0]
            .clone();
        self.note(&format!("undo of {} rows", self.live.len() - at));
        self.writer
            .call(&json!({"do": "rewind_to_message", "session_id": self.session, "target_message_id": id}));
        let gone = self.live.split_off(at);
        self.reference.take_back(&said(&gone));
        let for_the_first_time = !std::mem::replace(&mut self.taken_back, true);
        if for_the_first_time && self.random.happens(25) {
            self.mirror();
            self.catch_up();
            self.mirror();
            self.note("undo undone");
            self.writer
                .call(&json!({"do": "restore_rewound", "session_id": self.session, "since_message_id": id}));
            self.reference.give_back(&said(&gone));
            self.live.extend(gone);
            self.taken_back = false;
            self.catch_up();
        }
    }

    /// Edit and resend: what was typed once is typed anew, and all behind it is gone.
    pub(super) fn edit(&mut self) {
        let typed = self.typed();
        if self.version < (0, 17) || typed.is_empty() {
            return;
        }
        self.catch_up();
        // A summary that was merged into a row unseen hides the row, and its original would be gone.
        let hidden = |e: &Entry| e.boundary.is_some_and(|boundary| !self.reference.was_shown(boundary));
        if self.live.iter().any(hidden) {
            return;
        }
        let at = typed[typed.len() - 1 - self.below(3).min(typed.len() - 1)];
        self.note(&format!("edit: {at} of {} rows kept", self.live.len()));
        self.later(1_000, 5_000);
        let kept = &self.live[..at];
        self.writer.call(&json!({"do": "edit", "session_id": self.session, "messages": messages(kept)}));
        self.live.truncate(at);
        self.reference.cut(said(&self.live), self.version < (0, 20));
        // Hermes sends it at once.
        let words = self.words();
        self.note(&format!("user: {words}"));
        self.append_after(&json!({"role": "user", "content": words}), &[format!("user: {words}")], 10, 50);
        self.turn_behind();
    }

    pub(super) fn branch(&mut self) {
        let branch = format!("branch{}", self.number());
        self.note(&branch);
        let session = self.session.clone();
        self.writer.end_session(&session, "branched");
        let origin = json!({"parent_session_id": session, "model_config": {"_branched_from": session}});
        self.writer.create_session(&branch, &origin);
        for message in messages(&self.live) {
            self.writer.append(&branch, &message);
        }
        self.writer.append(&branch, &json!({"role": "user", "content": "yes"}));
        self.writer.call(&json!({"do": "reopen_session", "session_id": session}));
    }

    pub(super) fn delegate(&mut self) {
        let child = format!("sub{}", self.number());
        self.note(&child);
        let session = self.session.clone();
        let origin = json!({"source": "subagent", "parent_session_id": session,
                            "model_config": {"_delegate_from": session}});
        self.writer.create_session(&child, &origin);
        self.writer.append(&child, &json!({"role": "user", "content": "look"}));
        self.writer.append(&child, &json!({"role": "assistant", "content": "done", "finish_reason": "stop"}));
    }

    pub(super) fn elsewhere(&mut self) {
        let other = format!("other{}", self.number());
        self.note(&other);
        self.writer.create_session(&other, &json!({"cwd": "/elsewhere"}));
        self.writer.burst(&other, 5, "row");
    }

    /// Hermes is left and started again on the same session; it then knows its messages from the database.
    pub(super) fn resume(&mut self) {
        self.note("resume");
        let session = self.session.clone();
        self.writer.end_session(&session, "cli_close");
        self.later(1_000, 60_000);
        self.writer.call(&json!({"do": "reopen_session", "session_id": session}));
        let loaded = self.writer.call(&json!({"do": "get_messages_as_conversation", "session_id": session}));
        let loaded = loaded.as_array().unwrap();
        assert_eq!(loaded.len(), self.live.len(), "{}", self.watch.story());
        for (entry, message) in self.live.iter_mut().zip(loaded) {
            entry.message = message.clone();
        }
    }

    pub(super) fn copy(&mut self) {
        self.note("copy");
        self.writer.call(&json!({"do": "keep", "path": self.watch.world.path("copy.db")}));
        self.copy = Some(Copy {
            session: self.session.clone(),
            live: self.live.clone(),
            held: self.reference.held(),
        });
    }

    pub(super) fn restore(&mut self) {
        let Some(copy) = self.copy.take() else { return };
        self.catch_up();
        if !self.reference.has_passed(&copy.held) {
            return;
        }
        self.note("restore");
        self.later(1_000, 5_000);
        self.writer.call(&json!({"do": "restore", "path": self.watch.world.path("copy.db")}));
        self.watch.expect_reuse();
        self.reference.restore(copy.held);
        (self.session, self.live) = (copy.session, copy.live);
        self.turn();
    }
}

fn is_summary(entry: &Entry) -> bool {
    entry.message["content"].as_str().is_some_and(|text| text.starts_with("[CONTEXT COMPACTION"))
}

fn said(entries: &[Entry]) -> Vec<usize> {
    entries.iter().flat_map(Entry::said).collect()
}

fn messages(entries: &[Entry]) -> Vec<Value> {
    entries.iter().map(|entry| entry.message.clone()).collect()
}
