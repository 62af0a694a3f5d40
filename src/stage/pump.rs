//! One pass of reading: every mirror as far as the database and its lane allow.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::beside::{self, Seen};
use super::feed::Feed;
use crate::hermes::{Limits, Open, SourceError};
use crate::ids::{HermesSessionId, MessageId};

/// How long after a session was created it may be the one that a mirror waits for.
const JUST_BEGUN: Duration = Duration::from_mins(1);
/// How often a change is reason enough to ask everything, where no session was created.
const ASKED_AT_LEAST: Duration = Duration::from_secs(15);

/// When to ask what seldom changes: whether an older copy of the database was put in place, which session is a
/// terminal's, what a session is called. Asked at each wake, it would cost as much as there are mirrors.
#[derive(Debug)]
pub struct Occasions {
    newest_session: i64,
    /// Until when each change may make a session the one that a mirror waits for.
    expected_until: Instant,
    asked: Instant,
}

impl Default for Occasions {
    /// Nothing is known yet.
    fn default() -> Self {
        let now = Instant::now();
        Self { newest_session: -1, expected_until: now, asked: now }
    }
}

impl Occasions {
    pub(super) fn are_due(&mut self, newest_session: i64) -> bool {
        let now = Instant::now();
        let created = newest_session != self.newest_session;
        if created {
            self.newest_session = newest_session;
            self.expected_until = now + JUST_BEGUN;
        }
        let due = created || now.duration_since(self.asked) >= ASKED_AT_LEAST;
        if due {
            self.asked = now;
        }
        due
    }

    pub(super) fn has_just_begun(&self) -> bool {
        Instant::now() <= self.expected_until
    }
}

/// Brings every feed as far as the database and its lane allow. Returns whether the database turned out to be an
/// older copy of what was read.
pub fn pump(
    open: &Open,
    feeds: &mut [Feed],
    limits: Limits,
    occasions: &mut Occasions,
) -> Result<bool, SourceError> {
    let due = occasions.are_due(open.newest_session()?);
    bind(open, feeds, due || occasions.has_just_begun())?;
    let highest = open.highest_id()?;
    let mut is_older = false;
    for feed in feeds.iter_mut() {
        if feed.has_read_beyond(highest) {
            is_older |= feed.re_anchor(open, highest)?;
        }
        feed.revive(open)?;
        feed.take_back(open, highest)?;
        feed.expect_more(highest);
    }
    // Before the rows: the summary of a compaction may be among them.
    let locks = beside::locks(open);
    for feed in feeds.iter_mut() {
        feed.tell_beginning(locks.as_deref());
    }
    // What is new is on its way before anything else is asked.
    while read_behind_cursors(open, feeds, limits)? {}
    if due {
        // Rows have come since it was asked before.
        let highest = open.highest_id()?;
        for feed in feeds.iter_mut() {
            is_older |= feed.re_anchor(open, highest)?;
        }
    }
    // What changes the database without a row for anyone may be a title, the end of a session, or the rows of the one
    // that continues it.
    let everyone = due || !feeds.iter().any(Feed::has_news);
    // Before the last rows: what is said of a session then stands behind rows that this look reads.
    let mut seen = beside::look(open, feeds, locks, everyone);
    loop {
        while read_behind_cursors(open, feeds, limits)? {}
        let mut went_on = false;
        for feed in feeds.iter_mut().filter(|feed| feed.ready().is_some()) {
            feed.report_usage(open)?;
            if feed.session().is_some_and(|session| seen.is_over(session)) {
                went_on |= feed.follow_continuation(open)?;
            }
        }
        went_on |= follow_terminals(open, feeds, &seen)?;
        if !went_on {
            break;
        }
        bind(open, feeds, true)?;
        seen = seen.anew(open, feeds);
    }
    for feed in feeds.iter_mut() {
        feed.tell_beside(open, &seen);
    }
    Ok(is_older)
}

/// Follows the terminals that have left their sessions. Returns whether one did.
fn follow_terminals(open: &Open, feeds: &mut [Feed], seen: &Seen) -> Result<bool, SourceError> {
    let is_over = |feed: &Feed| feed.ready().is_some_and(|(session, _)| seen.is_over(session));
    if !feeds.iter().any(is_over) {
        return Ok(false);
    }
    let sessions: Vec<_> = feeds.iter().map(|feed| feed.session().cloned()).collect();
    let mut went_on = false;
    for (at, feed) in feeds.iter_mut().enumerate().filter(|(_, feed)| is_over(feed)) {
        let is_another_s = |session: &HermesSessionId| {
            let others = sessions.iter().enumerate().filter(|(other, _)| *other != at);
            others.filter_map(|(_, other)| other.as_ref()).any(|other| other == session)
        };
        went_on |= feed.follow_terminal(open, is_another_s)?;
    }
    Ok(went_on)
}

/// Finds the sessions of the feeds that have none. To look through all sessions of the database is for when it is
/// `due`: a feed may have to wait for its session for days.
fn bind(open: &Open, feeds: &mut [Feed], due: bool) -> Result<(), SourceError> {
    for at in 0..feeds.len() {
        if feeds.get(at).is_none_or(|feed| feed.is_bound() || !(due || feed.is_named())) {
            continue;
        }
        let others = feeds.iter().enumerate().filter(|(other, _)| *other != at);
        let others: Vec<_> = others.filter_map(|(_, feed)| feed.session().cloned()).collect();
        if let Some(feed) = feeds.get_mut(at) {
            feed.bind(open, &others)?;
        }
    }
    Ok(())
}

/// One scan for each distinct cursor, newest first: what just happened is never held up by a backlog.
/// Returns whether there may be more.
fn read_behind_cursors(open: &Open, feeds: &mut [Feed], limits: Limits) -> Result<bool, SourceError> {
    let mut cursors: BTreeMap<MessageId, Vec<HermesSessionId>> = BTreeMap::new();
    for (session, read_to) in feeds.iter().filter_map(Feed::ready) {
        let sessions = cursors.entry(read_to).or_default();
        if !sessions.contains(session) {
            sessions.push(session.clone());
        }
    }
    let mut more = false;
    for (cursor, sessions) in cursors.iter().rev() {
        let scan = open.scan(*cursor, sessions, limits)?;
        for feed in feeds.iter_mut() {
            let Some((_, read_to)) = feed.ready() else { continue };
            if read_to != *cursor {
                continue;
            }
            if feed.take(open, &scan.rows, scan.more)? {
                feed.advance(scan.scanned_to, scan.more);
            } else {
                // It is full, or has gone back and is to be read from there.
                more = true;
            }
        }
        more |= scan.more;
    }
    Ok(more)
}
