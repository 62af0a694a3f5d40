//! What Hermes writes down beside the messages.

use rusqlite::params;

use super::hermes_db::{HermesDb, Version, now};

/// What a model call has used: of which model, for which task (none: the conversation itself), input, output, dollars.
pub struct Used<'a> {
    pub model: &'a str,
    pub task: &'a str,
    pub input: i64,
    pub output: i64,
    pub cost: f64,
}

impl HermesDb {
    /// Names a session, for the reason that the version keeps beside the name.
    pub fn name(&mut self, session: &str, title: &str, source: &str) {
        let sourced = self.version >= Version::V20;
        self.commit(|write| {
            write.execute("UPDATE sessions SET title = ?2 WHERE id = ?1", params![session, title]).unwrap();
            if sourced {
                let set = "UPDATE sessions SET title_source = ?2 WHERE id = ?1";
                write.execute(set, params![session, source]).unwrap();
            }
        });
    }

    /// Begins a compaction: takes the session's lock for so many seconds.
    pub fn lock(&mut self, session: &str, seconds: f64) {
        self.commit(|write| {
            let take = "INSERT OR REPLACE INTO compression_locks VALUES (?1, 'pid:1:tid:1', ?2, ?3)";
            write.execute(take, params![session, now(), now() + seconds]).unwrap();
        });
    }

    /// Ends a compaction, whatever came of it.
    pub fn unlock(&mut self, session: &str) {
        self.commit(|write| {
            write.execute("DELETE FROM compression_locks WHERE session_id = ?1", [session]).unwrap();
        });
    }

    /// Adds a model call to the accounts, as Hermes does before it stores the answer.
    pub fn used(&mut self, session: &str, used: &Used<'_>) {
        let Used { model, task, input, output, cost } = *used;
        self.commit(|write| {
            if task.is_empty() {
                let add = "UPDATE sessions SET input_tokens = input_tokens + ?2, output_tokens = output_tokens + ?3, \
                           estimated_cost_usd = coalesce(estimated_cost_usd, 0) + ?4, cost_status = 'estimated' \
                           WHERE id = ?1";
                write.execute(add, params![session, input, output, cost]).unwrap();
            }
            let add = "INSERT INTO session_model_usage (session_id, model, task, input_tokens, output_tokens, \
                         reasoning_tokens, estimated_cost_usd, last_seen) VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7) \
                       ON CONFLICT (session_id, model, task) DO UPDATE SET input_tokens = input_tokens + ?4, \
                         output_tokens = output_tokens + ?5, estimated_cost_usd = estimated_cost_usd + ?6, \
                         last_seen = ?7";
            write.execute(add, params![session, model, task, input, output, cost, now()]).unwrap();
        });
    }

    /// Takes a session up again, as `-c` and `/resume` do.
    pub fn reopen_session(&mut self, session: &str) {
        self.commit(|write| {
            let reopen = "UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ?1";
            write.execute(reopen, [session]).unwrap();
        });
    }
}
