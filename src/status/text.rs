//! The status for people.

use std::fmt::Write;

use super::snapshot::{MirrorStatus, Quantiles, Snapshot, State};
use crate::printable::printable;

/// How wide a histogram's longest bar is, in columns.
const WIDTH: u64 = 30;
/// Columns of a block character, by eighths.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// How a histogram is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bars {
    /// With block characters.
    Blocks,
    /// In ASCII.
    Ascii,
    /// Not at all.
    None,
}

/// The status, some lines for each mirror. Characters that would steer a terminal are shown as their escapes.
#[must_use]
pub fn text(snapshot: &Snapshot, bars: Bars) -> String {
    let mut text = String::new();
    let running = words((snapshot.now_ms - snapshot.started_ms).max(0));
    // Writing to a String can't fail.
    let _ =
        writeln!(text, "hermes-mirror {}, process {}, running for {running}", snapshot.program, snapshot.pid);
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "  {name:<9} {}", printable(value));
    };
    for source in &snapshot.sources {
        let fault = source.fault.as_ref().map(|fault| format!(": {fault}")).unwrap_or_default();
        line("database", &format!("{}{fault}", source.database));
        if !source.events {
            line("", "events not seen: polling");
        }
    }
    line("server", &snapshot.server);
    if let Some(page) = &snapshot.page {
        line("page", page);
    }
    for mirror in &snapshot.mirrors {
        text.push('\n');
        one_mirror(&mut text, mirror, snapshot.now_ms, bars);
    }
    text
}

fn one_mirror(text: &mut String, mirror: &MirrorStatus, now_ms: i64, bars: Bars) {
    let MirrorStatus { rows, items, .. } = mirror;
    let name = State::ALL.iter().find(|(state, _)| *state == mirror.state).map_or("", |(_, name)| *name);
    let reason = mirror.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let _ = writeln!(text, "{}  {}{reason}", printable(&mirror.conversation), name.replace('_', " "));
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "  {name:<9} {}", printable(value));
    };
    line("session", mirror.session.as_deref().unwrap_or("none yet"));
    if let Some(row) = &mirror.last_row {
        line("last row", &format!("{}, {} ago", row.id, words((now_ms - row.at_ms).max(0))));
    }
    line("behind", &behind(mirror));
    let found =
        if items.found > 0 { format!(", {} found there already", items.found) } else { String::new() };
    line("items", &format!("{} delivered of {} rows{found}", items.delivered, rows.read));
    let letters = format!("{} dead letters, {} failed attempts", items.dead_letters, mirror.failed_attempts);
    line(
        "",
        &format!("{letters}, {} read-backs, {} secrets masked", mirror.read_backs, mirror.secrets_masked),
    );
    let times = &mirror.read_to_acknowledged;
    if times.count > 0 {
        let within = |percent| {
            times.within_us(percent).map_or("longer than shown".to_owned(), |us| format!("≤ {}", short(us)))
        };
        let parts = format!("half {}, 99 of 100 {}", within(50), within(99));
        line("latency", &format!("from read to acknowledged: {}", ascii(&parts, bars)));
        histogram(text, times, bars);
    }
}

fn behind(mirror: &MirrorStatus) -> String {
    let rows = &mirror.rows;
    if rows.waiting + rows.unread_at_most == 0 {
        return "nothing".to_owned();
    }
    let unread = if rows.unread_at_most > 0 {
        format!(", at most {} more to read", rows.unread_at_most)
    } else {
        String::new()
    };
    let age = rows.age_ms.map(|age| format!("; the oldest is {} old", words(age))).unwrap_or_default();
    let waiting =
        if rows.waiting == 1 { "1 row waits".to_owned() } else { format!("{} rows wait", rows.waiting) };
    format!("{waiting}{unread}{age}")
}

/// The ranges from the first to the last that has any.
fn histogram(text: &mut String, times: &Quantiles, bars: Bars) {
    if bars == Bars::None {
        return;
    }
    let buckets = &times.buckets;
    let first = buckets.iter().position(|bucket| bucket.count > 0).unwrap_or(0);
    let last = buckets.iter().rposition(|bucket| bucket.count > 0).unwrap_or(0);
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0).max(1);
    let mut longest = String::new();
    for bucket in buckets.iter().take(last + 1).skip(first) {
        let range = match bucket.at_most_us {
            Some(us) => format!("≤ {}", short(us)),
            None => format!("> {longest}"),
        };
        longest = bucket.at_most_us.map(short).unwrap_or(longest);
        let bar = bar(bucket.count, most, bars);
        let _ = writeln!(text, "    {:>8} {bar} {}", ascii(&range, bars), bucket.count);
    }
}

fn bar(count: u64, most: u64, bars: Bars) -> String {
    let eighths = count.saturating_mul(WIDTH * 8).div_ceil(most.max(1));
    let (whole, part) =
        (usize::try_from(eighths / 8).unwrap_or(0), usize::try_from(eighths % 8).unwrap_or(0));
    match bars {
        Bars::Blocks => "█".repeat(whole) + EIGHTHS.get(part).unwrap_or(&""),
        Bars::Ascii | Bars::None => "#".repeat(whole + usize::from(part > 0)),
    }
}

fn ascii(text: &str, bars: Bars) -> String {
    if bars == Bars::Ascii { text.replace('≤', "<=") } else { text.to_owned() }
}

/// A bound of the histogram, which is a round number.
fn short(us: u64) -> String {
    match us {
        0..=999 => format!("{us} us"),
        1_000..=999_999 => format!("{} ms", us / 1_000),
        _ => format!("{} s", us / 1_000_000),
    }
}

/// A time in its two largest units at most.
fn words(ms: i64) -> String {
    let s = ms / 1_000;
    match s {
        0 => format!("{ms} ms"),
        1..=59 => format!("{s} s"),
        60..=3_599 => format!("{} min {} s", s / 60, s % 60),
        3_600..=86_399 => format!("{} h {} min", s / 3_600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86_400, s / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::asked;
    use super::*;

    #[test]
    fn a_person_sees_each_mirror_and_no_terminal_is_steered() {
        let mut snapshot = asked().0.snapshot();
        (snapshot.pid, snapshot.program) = (7, "1.2.3".to_owned());
        (snapshot.started_ms, snapshot.now_ms) = (0, 90_500);
        let expected = "\
hermes-mirror 1.2.3, process 7, running for 1 min 30 s
  database  /h/state.db
            events not seen: polling
  server    http://h

conv_\"1  catching up
  session   s\\u{1b}[2J
  last row  4, 1 min 29 s ago
  behind    1 row waits
  items     1 delivered of 2 rows
            0 dead letters, 0 failed attempts, 0 read-backs, 0 secrets masked
  latency   from read to acknowledged: half ≤ 1 ms, 99 of 100 ≤ 1 ms
";
        assert_eq!(text(&snapshot, Bars::None), expected);
        let blocks = format!("{expected}      ≤ 1 ms {} 1\n", "█".repeat(30));
        assert_eq!(text(&snapshot, Bars::Blocks), blocks);
        let ascii = blocks.replace("  ≤", " <=").replace('≤', "<=").replace('█', "#");
        assert_eq!(text(&snapshot, Bars::Ascii), ascii);
    }

    #[test]
    fn bars_are_as_long_as_what_they_count() {
        assert_eq!(bar(8, 8, Bars::Blocks).chars().count(), 30);
        assert_eq!(bar(1, 240, Bars::Blocks), "▏");
        assert_eq!(bar(0, 8, Bars::Blocks), "");
        assert_eq!(bar(4, 8, Bars::Ascii), "#".repeat(15));
        assert_eq!(bar(1, u64::MAX / 1_000, Bars::Ascii), "#");
    }

    #[test]
    fn times_are_told_in_words() {
        for (ms, said) in
            [(0, "0 ms"), (999, "999 ms"), (59_999, "59 s"), (61_000, "1 min 1 s"), (90_000_000, "1 d 1 h")]
        {
            assert_eq!(words(ms), said);
        }
    }
}
