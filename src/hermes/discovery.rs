//! Which session belongs to a terminal, when nobody says so.
//!
//! Hermes names its sessions itself and records neither a pid nor, often, a working directory. What is known
//! of a terminal is where and when it was launched. A session that started since then is its own before one that
//! started earlier and was taken up since then. Among several that fit equally none is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::connection::{Open, SourceError};
use super::sessions::Session;
use crate::ids::{HermesSessionId, MessageId};

/// A session may have started this long before the launch that was recorded, in s: two clocks' skew.
pub const LAUNCH_SKEW_S: f64 = 10.0;

/// Longest chain of compactions that is walked; Hermes itself stops at 100.
const LONGEST_CHAIN: usize = 100;

/// What is known of the terminal.
#[derive(Clone, Debug, PartialEq)]
pub struct Terminal {
    /// Its working directory.
    pub workspace: PathBuf,
    /// When it was launched, in s since the epoch.
    pub launch_epoch_s: f64,
    /// The `source` that its sessions may have.
    pub sources: Vec<String>,
}

/// What discovery made of the candidates.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// The session. It began with the terminal, and so does what is shown of it.
    Session(HermesSessionId),
    /// An older session that was taken up again, and the last of its rows from before.
    Resumed(HermesSessionId, MessageId),
    /// No candidate yet.
    Nothing,
    /// Several candidates, and nothing to choose by: a person must name one.
    Ambiguous(Vec<HermesSessionId>),
}

/// A session that stands for election.
struct Candidate {
    session: Session,
    /// The directory it works in, where one is recorded.
    cwd: Option<String>,
    /// Where an older one was taken up again: its first row of that time.
    taken_up: Option<MessageId>,
}

impl Candidate {
    fn found(&self) -> Found {
        let id = self.session.id.clone();
        match self.taken_up {
            Some(first) => Found::Resumed(id, MessageId::new(first.get().saturating_sub(1))),
            None => Found::Session(id),
        }
    }
}

/// Looks for the terminal's session. `taken` says whether a live sibling mirrors it already.
pub fn discover(
    open: &Open,
    terminal: &Terminal,
    taken: impl Fn(&HermesSessionId) -> bool,
) -> Result<Found, SourceError> {
    let floor = terminal.launch_epoch_s - LAUNCH_SKEW_S;
    let sessions = in_use_since(open, floor)?;
    let mut candidates = Vec::new();
    for (session, taken_up) in &sessions {
        if session.is_side_session() || !session.is_from(&terminal.sources) {
            continue;
        }
        let is_candidate = |ancestor: &Session| sessions.iter().any(|(other, _)| other.id == ancestor.id);
        let candidate = Candidate { session: session.clone(), cwd: session.cwd.clone(), taken_up: *taken_up };
        let Some(candidate) = stand(open, candidate, is_candidate)? else { continue };
        candidates.push(candidate);
    }
    let mut known = BTreeMap::new();
    let is_workspace = |cwd: &str| {
        *known.entry(cwd.to_owned()).or_insert_with(|| same_directory(Path::new(cwd), &terminal.workspace))
    };
    choose(candidates, is_workspace, |session| is_taken(open, &session.id, &taken))
}

/// The sessions that began at or after `floor`, and the older ones that someone has taken up since: with the first
/// row of that time. A resume makes `ended_at` empty again; one that has ended is no terminal's any more.
fn in_use_since(open: &Open, floor: f64) -> Result<Vec<(Session, Option<MessageId>)>, SourceError> {
    let mut sessions: Vec<_> =
        open.sessions_since(floor)?.into_iter().map(|session| (session, None)).collect();
    // Where the launch is not known, none is older.
    let active = if floor > 0.0 { open.active_since(floor)? } else { BTreeSet::new() };
    for id in active {
        if sessions.iter().any(|(session, _)| session.id == id) {
            continue;
        }
        let Some(session) = open.session(&id)? else { continue };
        if session.ended_at.is_some() && !session.is_compacted_away() {
            continue;
        }
        if let Some(first) = open.begun_since(&id, floor)? {
            sessions.push((session, Some(first)));
        }
    }
    Ok(sessions)
}

/// Whether a sibling mirrors the session, or one that continues it: who follows the child of a compaction came
/// there through its parent.
fn is_taken(
    open: &Open,
    session: &HermesSessionId,
    taken: impl Fn(&HermesSessionId) -> bool,
) -> Result<bool, SourceError> {
    let mut next = Some(session.clone());
    for _ in 0..LONGEST_CHAIN {
        let Some(id) = next else { return Ok(false) };
        if taken(&id) {
            return Ok(true);
        }
        next = open.continuation(&id)?;
    }
    Ok(false)
}

/// Takes a candidate unless it is none: what was branched or delegated is nobody's terminal, and what continues
/// another candidate is reached through that one.
///
/// Hermes leaves `cwd` empty in the child that a compaction forks, so it is looked up along the chain.
fn stand(
    open: &Open,
    mut candidate: Candidate,
    is_candidate: impl Fn(&Session) -> bool,
) -> Result<Option<Candidate>, SourceError> {
    let mut parent = candidate.session.parent.clone();
    for _ in 0..LONGEST_CHAIN {
        let Some(id) = parent else { return Ok(Some(candidate)) };
        let Some(ancestor) = open.session(&id)? else { return Ok(None) };
        if !ancestor.is_compacted_away() || is_candidate(&ancestor) {
            return Ok(None);
        }
        candidate.cwd = candidate.cwd.or(ancestor.cwd);
        parent = ancestor.parent;
    }
    Ok(None)
}

/// The sessions that began with the terminal come first, then those that were taken up again, last those that their
/// terminal has left. Whether one is `taken` is asked of as few as possible, since it reads every sibling's claim: a
/// database may hold thousands of sessions.
fn choose<E>(
    candidates: Vec<Candidate>,
    mut is_workspace: impl FnMut(&str) -> bool,
    taken: impl Fn(&Session) -> Result<bool, E>,
) -> Result<Found, E> {
    let (left, here): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|one| one.session.is_left());
    let (taken_up, begun): (Vec<_>, Vec<_>) = here.into_iter().partition(|one| one.taken_up.is_some());
    for candidates in [begun, taken_up, left] {
        let found = choose_among(&candidates, &mut is_workspace, &taken)?;
        if found != Found::Nothing {
            return Ok(found);
        }
    }
    Ok(Found::Nothing)
}

/// The newest of the directory, or the only one that was taken up again in it; where no candidate records a
/// directory, a lone candidate.
fn choose_among<E>(
    candidates: &[Candidate],
    mut is_workspace: impl FnMut(&str) -> bool,
    taken: impl Fn(&Session) -> Result<bool, E>,
) -> Result<Found, E> {
    let (placed, unplaced): (Vec<_>, Vec<_>) = candidates.iter().partition(|one| one.cwd.is_some());
    let (mut here, elsewhere): (Vec<_>, Vec<_>) =
        placed.into_iter().partition(|one| one.cwd.as_deref().is_some_and(&mut is_workspace));
    here.sort_by(|a, b| {
        let (a, b) = (&a.session, &b.session);
        b.started_at.total_cmp(&a.started_at).then_with(|| b.id.cmp(&a.id))
    });
    let mut taken_up = Vec::new();
    for one in here {
        if !taken(&one.session)? {
            if one.taken_up.is_none() {
                return Ok(one.found());
            }
            taken_up.insert(0, one);
        }
    }
    if !taken_up.is_empty() {
        return Ok(only(&taken_up));
    }
    for one in elsewhere {
        if !taken(&one.session)? {
            return Ok(Found::Nothing);
        }
    }
    let mut free = Vec::new();
    for one in unplaced {
        if !taken(&one.session)? {
            free.push(one);
        }
    }
    Ok(only(&free))
}

/// The one candidate there is.
fn only(candidates: &[&Candidate]) -> Found {
    match candidates {
        [] => Found::Nothing,
        [one] => one.found(),
        several => Found::Ambiguous(several.iter().map(|one| one.session.id.clone()).collect()),
    }
}

/// Whether two paths name one directory, links resolved.
pub(super) fn same_directory(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::convert::Infallible;

    use super::*;

    fn candidate(id: &str, started_at: f64, cwd: Option<&str>) -> Candidate {
        let session = Session {
            id: HermesSessionId::new(id),
            source: "cli".to_owned(),
            cwd: cwd.map(str::to_owned),
            started_at,
            ended_at: None,
            end_reason: None,
            parent: None,
            model: None,
            title: None,
            marker: None,
            has_rows: true,
        };
        Candidate { session, cwd: cwd.map(str::to_owned), taken_up: None }
    }

    fn resumed(id: &str, first: i64, cwd: Option<&str>) -> Candidate {
        Candidate { taken_up: Some(MessageId::new(first)), ..candidate(id, 0.5, cwd) }
    }

    fn left(id: &str, started_at: f64, cwd: Option<&str>) -> Candidate {
        let mut candidate = candidate(id, started_at, cwd);
        candidate.session.end_reason = Some("resumed_other".to_owned());
        candidate
    }

    fn session(id: &str) -> Found {
        Found::Session(HermesSessionId::new(id))
    }

    fn chosen(candidates: Vec<Candidate>) -> Found {
        let free = |_: &Session| Ok::<_, Infallible>(false);
        choose(candidates, |cwd| cwd == "/work", free).unwrap_or(Found::Nothing)
    }

    #[test]
    fn of_thousands_of_sessions_only_those_of_the_directory_are_asked_for_their_claims() {
        let mut candidates: Vec<_> =
            (0..5_000_u32).map(|n| candidate(&n.to_string(), f64::from(n), Some("/other"))).collect();
        candidates.push(candidate("older", 1.0, Some("/work")));
        candidates.push(candidate("newer, taken", 2.0, Some("/work")));
        let asked = RefCell::new(Vec::new());
        let taken = |session: &Session| {
            asked.borrow_mut().push(session.id.as_str().to_owned());
            Ok::<_, Infallible>(session.id.as_str() == "newer, taken")
        };
        let found = choose(candidates, |cwd| cwd == "/work", taken);
        assert_eq!(found, Ok(Found::Session(HermesSessionId::new("older"))));
        assert_eq!(asked.into_inner(), ["newer, taken", "older"]);
    }

    #[test]
    fn the_newest_session_of_the_directory_wins() {
        let candidates = vec![
            candidate("older", 1.0, Some("/work")),
            candidate("newer", 2.0, Some("/work")),
            candidate("newest, elsewhere", 3.0, Some("/other")),
        ];
        assert_eq!(chosen(candidates), session("newer"));
    }

    #[test]
    fn a_lone_session_without_a_directory_is_taken() {
        assert_eq!(chosen(vec![candidate("lone", 1.0, None)]), session("lone"));
    }

    #[test]
    fn several_without_a_directory_are_refused_by_name() {
        let several = vec![candidate("a", 1.0, None), candidate("b", 2.0, None)];
        let ids = vec![HermesSessionId::new("a"), HermesSessionId::new("b")];
        assert_eq!(chosen(several), Found::Ambiguous(ids));
    }

    #[test]
    fn a_session_of_another_directory_is_never_taken_even_alone() {
        assert_eq!(chosen(vec![candidate("lone", 1.0, Some("/other"))]), Found::Nothing);
        let beside = vec![candidate("a", 1.0, Some("/other")), candidate("b", 2.0, None)];
        assert_eq!(chosen(beside), Found::Nothing);
    }

    #[test]
    fn an_older_session_that_was_taken_up_again_stands_behind_a_new_one() {
        let again = || resumed("old", 7, Some("/work"));
        let found = Found::Resumed(HermesSessionId::new("old"), MessageId::new(6));
        assert_eq!(chosen(vec![again()]), found);
        assert_eq!(chosen(vec![resumed("old", 7, None)]), found);
        assert_eq!(chosen(vec![again(), candidate("new", 1.0, Some("/work"))]), session("new"));
        assert_eq!(chosen(vec![again(), left("new", 1.0, Some("/work"))]), found);
        assert_eq!(chosen(vec![resumed("old", 7, Some("/other"))]), Found::Nothing);
    }

    #[test]
    fn among_several_that_were_taken_up_again_none_is_guessed() {
        let several = vec![resumed("a", 7, Some("/work")), resumed("b", 9, Some("/work"))];
        let ids = vec![HermesSessionId::new("a"), HermesSessionId::new("b")];
        assert_eq!(chosen(several), Found::Ambiguous(ids));
    }

    #[test]
    fn side_sessions_are_no_terminals() {
        for (id, source) in [("bg_120000_abc123", "cli"), ("x", "subagent"), ("x", "tool"), ("x", "cron")] {
            let mut session = candidate(id, 1.0, None).session;
            session.source = source.to_owned();
            assert!(session.is_side_session(), "{id} {source}");
        }
        let mut branch = candidate("x", 1.0, None).session;
        branch.marker = Some(super::super::sessions::Marker::Branch);
        assert!(branch.is_side_session());
    }
}
