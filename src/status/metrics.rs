//! The status in Prometheus's text format.

use std::fmt::{Display, Write};

use super::snapshot::{MirrorStatus, Quantiles, Snapshot, State};

/// What the answer is called.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const TIMES: &str = "read_to_acknowledged_seconds";

/// Of a mirror: name, kind, what it says, where it stands.
type Figure = (&'static str, &'static str, &'static str, fn(&MirrorStatus) -> u64);

const FIGURES: [Figure; 10] = [
    ("rows_read_total", "counter", "Rows of the session that were read.", |m| m.rows.read),
    ("rows_waiting", "gauge", "Rows that were read and are not delivered.", |m| m.rows.waiting),
    (
        "rows_unread_at_most",
        "gauge",
        "Rows of the database that were not looked at yet, of whichever session.",
        |m| m.rows.unread_at_most,
    ),
    ("items_delivered_total", "counter", "Items that were sent and acknowledged.", |m| m.items.delivered),
    ("items_found_total", "counter", "Items that read-back found, and that were not sent again.", |m| {
        m.items.found
    }),
    ("dead_letters_total", "counter", "Items that the server refused for good.", |m| m.items.dead_letters),
    ("failed_attempts_total", "counter", "Attempts to deliver that failed and are made again.", |m| {
        m.failed_attempts
    }),
    ("read_backs_total", "counter", "How often the conversation was read back.", |m| m.read_backs),
    ("secrets_masked_total", "counter", "Secrets that were masked.", |m| m.secrets_masked),
    ("last_row", "gauge", "Id of the last row of the session that was read; 0 for none.", |m| {
        m.last_row.as_ref().map_or(0, |row| row.id.unsigned_abs())
    }),
];

/// The metrics, all of them named `hermes_mirror_…`.
pub fn metrics(snapshot: &Snapshot) -> String {
    let mut page = Page::default();
    page.head("info", "gauge", "The program.");
    page.line("info", &[("version", &snapshot.program)], 1);
    page.head("start_time_seconds", "gauge", "When the process started, in s since the epoch.");
    page.line("start_time_seconds", &[], Seconds::of_ms(snapshot.started_ms));
    page.head("well", "gauge", "1 while the sources are read and no mirror is held, parked or degraded.");
    page.line("well", &[], u8::from(snapshot.well));
    page.head("source_readable", "gauge", "1 while the database can be read.");
    for source in &snapshot.sources {
        page.line("source_readable", &[("database", &source.database)], u8::from(source.fault.is_none()));
    }
    page.head("source_events", "gauge", "1 while events announce changes; 0 while a poll finds them.");
    for source in &snapshot.sources {
        page.line("source_events", &[("database", &source.database)], u8::from(source.events));
    }
    page.head("state", "gauge", "1 for the state that the mirror is in.");
    for mirror in &snapshot.mirrors {
        for (state, name) in State::ALL {
            let labels = [("conversation", mirror.conversation.as_str()), ("state", name)];
            page.line("state", &labels, u8::from(mirror.state == state));
        }
    }
    for (name, kind, help, figure) in FIGURES {
        page.head(name, kind, help);
        for mirror in &snapshot.mirrors {
            page.line(name, &[("conversation", &mirror.conversation)], figure(mirror));
        }
    }
    page.head("age_seconds", "gauge", "Age of the row that is being delivered, by its own time; 0 for none.");
    for mirror in &snapshot.mirrors {
        let age = Seconds::of_ms(mirror.rows.age_ms.unwrap_or(0));
        page.line("age_seconds", &[("conversation", &mirror.conversation)], age);
    }
    page.head(TIMES, "histogram", "From the reading of a row to the acknowledgement of each of its items.");
    for mirror in &snapshot.mirrors {
        page.histogram(TIMES, &mirror.conversation, &mirror.read_to_acknowledged);
    }
    page.0
}

#[derive(Default)]
struct Page(String);

// Writing to a String can't fail.
impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP hermes_mirror_{name} {help}\n# TYPE hermes_mirror_{name} {kind}\n");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<_> =
            labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "hermes_mirror_{name}{labels} {value}");
    }

    fn histogram(&mut self, name: &str, conversation: &str, times: &Quantiles) {
        let mut passed = 0;
        for bucket in &times.buckets {
            passed += bucket.count;
            let end = bucket.at_most_us.map_or("+Inf".to_owned(), |us| Seconds(us).to_string());
            let labels = [("conversation", conversation), ("le", end.as_str())];
            self.line(&format!("{name}_bucket"), &labels, passed);
        }
        self.line(&format!("{name}_sum"), &[("conversation", conversation)], Seconds(times.sum_us));
        self.line(&format!("{name}_count"), &[("conversation", conversation)], times.count);
    }
}

/// So many us, shown in s.
struct Seconds(u64);

impl Seconds {
    fn of_ms(ms: i64) -> Self {
        Self(ms.max(0).unsigned_abs().saturating_mul(1_000))
    }
}

impl Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000);
        f.write_str(digits.trim_end_matches('0').trim_end_matches('.'))
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::asked;
    use super::*;

    #[test]
    fn a_scraper_reads_each_figure_under_its_kind() {
        let text = metrics(&asked().0.snapshot());
        for line in [
            "# TYPE hermes_mirror_rows_waiting gauge",
            "hermes_mirror_rows_waiting{conversation=\"conv_\\\"1\"} 1",
            "hermes_mirror_state{conversation=\"conv_\\\"1\",state=\"catching_up\"} 1",
            "# TYPE hermes_mirror_read_to_acknowledged_seconds histogram",
            "hermes_mirror_read_to_acknowledged_seconds_bucket{conversation=\"conv_\\\"1\",le=\"0.0005\"} 0",
            "hermes_mirror_read_to_acknowledged_seconds_bucket{conversation=\"conv_\\\"1\",le=\"0.001\"} 1",
            "hermes_mirror_read_to_acknowledged_seconds_bucket{conversation=\"conv_\\\"1\",le=\"+Inf\"} 1",
            "hermes_mirror_read_to_acknowledged_seconds_sum{conversation=\"conv_\\\"1\"} 0.0007",
            "hermes_mirror_source_readable{database=\"/h/state.db\"} 1",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let family =
                ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            assert!(text.contains(&format!("# HELP {family} ")), "{line}");
        }
    }
}
