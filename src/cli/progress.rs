//! How far a backlog has come: a line that renews itself on a terminal, else a line of the log for each tenth.

use std::time::{Duration, Instant};

use hermes_mirror::stage::backlog::Backlog;

use super::log_writer;

/// Fewer rows than these are delivered before anyone could read of it.
const WORTH_A_WORD: u64 = 500;
/// How often the line is renewed.
const RENEWED: Duration = Duration::from_millis(200);
/// Characters of the bar.
const BAR: u64 = 24;

/// Reports each backlog until it is delivered; never ends.
pub async fn report(backlog: Backlog) {
    loop {
        backlog.grows().await;
        if backlog.left() >= WORTH_A_WORD {
            follow(&backlog).await;
        }
    }
}

async fn follow(backlog: &Backlog) {
    let (began, before) = (Instant::now(), backlog.passed());
    let mut tenths = 0;
    loop {
        let state = State { done: backlog.passed() - before, left: backlog.left(), took: began.elapsed() };
        if log_writer::is_terminal() {
            log_writer::renew(&state.line());
        } else if state.tenths() > tenths {
            tenths = state.tenths();
            tracing::info!("delivering what was there: {}", state.words());
        }
        if state.left == 0 {
            log_writer::renew("");
            tracing::info!(rows = state.done, "delivered what was there");
            return;
        }
        tokio::time::sleep(RENEWED).await;
    }
}

/// How far it has come.
struct State {
    done: u64,
    left: u64,
    took: Duration,
}

impl State {
    fn total(&self) -> u64 {
        self.done + self.left
    }

    fn tenths(&self) -> u64 {
        (self.done * 10).checked_div(self.total()).unwrap_or(10)
    }

    fn words(&self) -> String {
        let per_cent = (self.done * 100).checked_div(self.total()).unwrap_or(100);
        let took_ms = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = self.done.saturating_mul(1_000) / took_ms;
        let left =
            self.left.checked_div(rate).map(|left| format!(", {rate} rows/s, {} left", duration(left)));
        format!("{per_cent} %, {} of {} rows{}", self.done, self.total(), left.unwrap_or_default())
    }

    fn line(&self) -> String {
        let full = (self.done * BAR).checked_div(self.total()).unwrap_or(BAR);
        let bar: String = (0..BAR).map(|at| if at < full { '#' } else { '.' }).collect();
        format!("[{bar}] {}", self.words())
    }
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..=90 => format!("{seconds} s"),
        91..=5_400 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_it_is_how_fast_and_how_long_still() {
        let state = State { done: 2_500, left: 7_500, took: Duration::from_secs(5) };
        assert_eq!(
            state.line(),
            "[######..................] 25 %, 2500 of 10000 rows, 500 rows/s, 15 s left"
        );
        let begun = State { done: 0, left: 600, took: Duration::ZERO };
        assert_eq!(begun.line(), "[........................] 0 %, 0 of 600 rows");
        let over = State { done: 0, left: 0, took: Duration::ZERO };
        assert_eq!(over.words(), "100 %, 0 of 0 rows");
        assert_eq!((duration(91), duration(5_401)), ("1 min".to_owned(), "1 h".to_owned()));
    }
}
