//! What a session and the sessions it continues have used.
//!
//! `sessions` counts the calls of the conversation itself. `session_model_usage` (from 0.19) counts them by model,
//! and beside them those that `sessions` leaves out: titles, summaries, images, each under its `task`.

use super::connection::{Open, SourceError};
use crate::event::{ModelUsage, Usage};
use crate::ids::HermesSessionId;

/// What one session has used of one model, in the conversation or beside it.
struct Part {
    usage: ModelUsage,
    auxiliary: bool,
}

impl Open {
    /// What the session and those it continues have used.
    ///
    /// Hermes counts cached input apart from `input_tokens`, and reasoning inside `output_tokens`; a child of
    /// a fork compaction counts from zero again.
    pub fn usage(&self, session: &HermesSessionId) -> Result<Usage, SourceError> {
        let mut usage = self.own_usage(session)?;
        for ancestor in self.ancestors(session)? {
            let earlier = self.own_usage(&ancestor.id)?;
            usage.input_tokens = usage.input_tokens.saturating_add(earlier.input_tokens);
            usage.output_tokens = usage.output_tokens.saturating_add(earlier.output_tokens);
            usage.cached_tokens = usage.cached_tokens.saturating_add(earlier.cached_tokens);
            usage.cost_usd = match (usage.cost_usd, earlier.cost_usd) {
                (Some(a), Some(b)) => Some(a + b),
                (a, b) => a.or(b),
            };
            usage.model = usage.model.or(earlier.model);
            for model in earlier.models {
                add(&mut usage.models, model);
            }
        }
        Ok(usage)
    }

    fn own_usage(&self, session: &HermesSessionId) -> Result<Usage, SourceError> {
        let mut usage = self.counted(session).map_err(|e| self.error(e))?;
        // The model of the last call: the session's own row keeps the first one, whatever the person switches to.
        let parts = self.parts(session).map_err(|e| self.error(e))?;
        let live = parts.iter().find(|part| !part.auxiliary).map(|part| part.usage.model.clone());
        usage.model = live.or(usage.model);
        for part in parts {
            if part.auxiliary {
                usage.input_tokens = usage.input_tokens.saturating_add(part.usage.input_tokens);
                usage.output_tokens = usage.output_tokens.saturating_add(part.usage.output_tokens);
                usage.cached_tokens = usage.cached_tokens.saturating_add(part.usage.cached_tokens);
                // Where the conversation's own price is unknown, that of the rest would pass for the whole.
                usage.cost_usd = usage.cost_usd.map(|cost| cost + part.usage.cost_usd);
            }
            add(&mut usage.models, part.usage);
        }
        Ok(usage)
    }

    /// What the session's own row counts.
    fn counted(&self, session: &HermesSessionId) -> rusqlite::Result<Usage> {
        const COLUMNS: &[(&str, &str)] = &[
            ("model", "NULL"),
            ("input_tokens", "0"),
            ("output_tokens", "0"),
            ("cache_read_tokens", "0"),
            ("cache_write_tokens", "0"),
            ("actual_cost_usd", "NULL"),
            ("estimated_cost_usd", "NULL"),
            ("cost_status", "NULL"),
        ];
        let select = self.schema().select("sessions", COLUMNS);
        let mut statement =
            self.conn().prepare_cached(&format!("SELECT {select} FROM sessions WHERE id = ?1"))?;
        let mut rows = statement.query([session.as_str()])?;
        let Some(row) = rows.next()? else { return Ok(Usage::default()) };
        let cost = |at| row.get::<_, Option<f64>>(at).ok().flatten();
        // Hermes writes 0.0 with status 'unknown' for a model whose price it does not know: no cost, not a free one.
        let known = row.get::<_, Option<String>>(7).ok().flatten().as_deref() != Some("unknown");
        Ok(Usage {
            model: row.get::<_, Option<String>>(0).ok().flatten().filter(|m| !m.is_empty()),
            input_tokens: input(row),
            output_tokens: count(row, 2),
            cached_tokens: count(row, 3),
            cost_usd: cost(5).or(cost(6).filter(|_| known)),
            models: Vec::new(),
        })
    }

    /// What the session has used by model, the one that answered last first.
    fn parts(&self, session: &HermesSessionId) -> rusqlite::Result<Vec<Part>> {
        const COLUMNS: &[(&str, &str)] = &[
            ("model", "''"),
            ("input_tokens", "0"),
            ("output_tokens", "0"),
            ("cache_read_tokens", "0"),
            ("cache_write_tokens", "0"),
            ("actual_cost_usd", "0"),
            ("estimated_cost_usd", "0"),
            ("task", "''"),
            ("last_seen", "0"),
        ];
        if !self.schema().has("session_model_usage.session_id") {
            return Ok(Vec::new());
        }
        let select = self.schema().select("session_model_usage", COLUMNS);
        let mut statement = self.conn().prepare_cached(&format!(
            "SELECT {select} FROM session_model_usage WHERE session_id = ?1 ORDER BY last_seen DESC"
        ))?;
        let parts = statement.query_map([session.as_str()], |row| {
            let cost = |at| row.get::<_, Option<f64>>(at).ok().flatten().filter(|cost| *cost > 0.0);
            let usage = ModelUsage {
                model: row.get::<_, Option<String>>(0).ok().flatten().unwrap_or_default(),
                input_tokens: input(row),
                output_tokens: count(row, 2),
                cached_tokens: count(row, 3),
                cost_usd: cost(5).or(cost(6)).unwrap_or(0.0),
            };
            let task = row.get::<_, Option<String>>(7).ok().flatten();
            Ok(Part { usage, auxiliary: task.is_some_and(|task| !task.is_empty()) })
        })?;
        let named = |part: &Part| !matches!(part.usage.model.as_str(), "" | "unknown");
        parts.filter(|part| part.as_ref().map_or(true, |part| part.auxiliary || named(part))).collect()
    }
}

fn count(row: &rusqlite::Row<'_>, at: usize) -> u64 {
    row.get::<_, Option<i64>>(at).ok().flatten().map_or(0, |n| u64::try_from(n).unwrap_or(0))
}

/// All input tokens: those that were read from a cache or written to it stand in columns of their own.
fn input(row: &rusqlite::Row<'_>) -> u64 {
    count(row, 1).saturating_add(count(row, 3)).saturating_add(count(row, 4))
}

fn add(models: &mut Vec<ModelUsage>, more: ModelUsage) {
    match models.iter_mut().find(|known| known.model == more.model) {
        Some(known) => {
            known.input_tokens = known.input_tokens.saturating_add(more.input_tokens);
            known.output_tokens = known.output_tokens.saturating_add(more.output_tokens);
            known.cached_tokens = known.cached_tokens.saturating_add(more.cached_tokens);
            known.cost_usd += more.cost_usd;
        }
        None => models.push(more),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rusqlite::{Connection, OpenFlags};

    use super::super::Source;
    use super::*;

    const TABLES: &str =
        "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT);
        CREATE TABLE sessions (id TEXT PRIMARY KEY, started_at REAL, model TEXT, parent_session_id TEXT,
            end_reason TEXT, input_tokens INTEGER, output_tokens INTEGER, cache_read_tokens INTEGER,
            cache_write_tokens INTEGER, actual_cost_usd REAL, estimated_cost_usd REAL, cost_status TEXT);";
    const BY_MODEL: &str = "CREATE TABLE session_model_usage (session_id TEXT, model TEXT, task TEXT,
            input_tokens INTEGER, output_tokens INTEGER, cache_read_tokens INTEGER, cache_write_tokens INTEGER,
            reasoning_tokens INTEGER, estimated_cost_usd REAL, actual_cost_usd REAL, last_seen REAL);";

    fn usage(sql: &str) -> Usage {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("state.db");
        let conn = Connection::open_with_flags(&path, OpenFlags::default()).expect("create");
        conn.execute_batch(&format!("{TABLES}{sql}")).expect("sql");
        let mut source = Source::new(path, Duration::ZERO);
        source.open().expect("open").usage(&HermesSessionId::new("s")).expect("usage")
    }

    fn main(cost: &str, status: &str) -> String {
        format!(
            "INSERT INTO sessions VALUES ('s', 1, 'm', NULL, NULL, 100, 20, 7, 3, NULL, {cost}, '{status}');"
        )
    }

    #[test]
    fn calls_beside_the_conversation_count_and_reasoning_is_part_of_the_output() {
        let sql = format!(
            "{}{BY_MODEL}
             INSERT INTO session_model_usage VALUES ('s', 'm', '', 100, 20, 7, 3, 15, 0.5, 0, 1);
             INSERT INTO session_model_usage VALUES ('s', 'small', 'title_generation', 10, 2, 0, 0, 1, 0.25, 0, 2);",
            main("0.5", "estimated")
        );
        let found = usage(&sql);
        assert_eq!((found.input_tokens, found.output_tokens, found.cached_tokens), (120, 22, 7));
        assert_eq!((found.cost_usd, found.model.as_deref()), (Some(0.75), Some("m")));
        let models: Vec<_> = found.models.iter().map(|m| (m.model.as_str(), m.output_tokens)).collect();
        assert_eq!(models, [("small", 2), ("m", 20)]);
    }

    #[test]
    fn a_price_that_is_not_known_is_not_made_of_the_calls_beside() {
        let sql = format!(
            "{}{BY_MODEL}INSERT INTO session_model_usage VALUES ('s', 'small', 'vision', 10, 2, 0, 0, 0, 0.25, 0, 2);",
            main("0.0", "unknown")
        );
        assert_eq!(usage(&sql).cost_usd, None);
    }

    #[test]
    fn the_model_is_that_of_the_last_call() {
        let sql = format!(
            "{}{BY_MODEL}
             INSERT INTO session_model_usage VALUES ('s', 'm', '', 60, 10, 0, 0, 0, 0, 0, 1);
             INSERT INTO session_model_usage VALUES ('s', 'n', '', 40, 10, 0, 0, 0, 0, 0, 5);
             INSERT INTO session_model_usage VALUES ('s', 'small', 'vision', 1, 1, 0, 0, 0, 0, 0, 9);",
            main("NULL", "unknown")
        );
        assert_eq!(usage(&sql).model.as_deref(), Some("n"));
    }

    #[test]
    fn a_version_that_keeps_no_account_by_model_tells_what_its_session_counts() {
        let found = usage(&main("0.5", "estimated"));
        assert_eq!((found.input_tokens, found.cost_usd, found.models), (110, Some(0.5), vec![]));
    }

    #[test]
    fn what_a_compacted_session_used_is_part_of_its_continuations_total() {
        let sql = format!(
            "{BY_MODEL}
             INSERT INTO sessions VALUES ('p', 0, 'm', NULL, 'compression', 50, 5, 0, 0, NULL, 0.25, 'estimated');
             INSERT INTO sessions VALUES ('s', 1, 'm', 'p', NULL, 10, 1, 0, 0, NULL, 0.5, 'estimated');
             INSERT INTO session_model_usage VALUES ('p', 'm', '', 50, 5, 0, 0, 0, 0.25, 0, 1);
             INSERT INTO session_model_usage VALUES ('p', 'm', 'compression', 7, 2, 0, 0, 0, 0.125, 0, 1);
             INSERT INTO session_model_usage VALUES ('s', 'm', '', 10, 1, 0, 0, 0, 0.5, 0, 2);"
        );
        let found = usage(&sql);
        assert_eq!((found.input_tokens, found.output_tokens, found.cost_usd), (67, 8, Some(0.875)));
        assert_eq!(found.models.len(), 1);
        assert_eq!(found.models[0].input_tokens, 67);
    }
}
