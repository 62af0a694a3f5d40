//! What a person saw: the reference that the mirror is held against. It knows no ids, no times and no columns.

/// What was said, by number, as Hermes holds it now, each in the order of its rows.
#[derive(Clone, Default)]
pub struct Held {
    /// With the sessions that this one continues.
    left_behind: Vec<usize>,
    /// In the session, no longer live: a compaction archived it.
    archived: Vec<usize>,
    live: Vec<usize>,
}

impl Held {
    fn all(&self) -> impl Iterator<Item = usize> {
        self.left_behind.iter().chain(&self.archived).chain(&self.live).copied()
    }
}

struct Said {
    lines: Vec<String>,
    /// What the person had typed when it was said, by number; none for a summary.
    turn: Option<usize>,
    shown: bool,
}

/// A conversation as its person knows it.
#[derive(Default)]
pub struct Reference {
    said: Vec<Said>,
    held: Held,
    /// What the person typed last.
    turn: usize,
    /// What a mirror has to have shown by now, each line with its turn.
    transcript: Vec<(Option<usize>, String)>,
}

/// Lines with their turns, counted as they begin: ids are the program's own, but which lines have one in common is not.
/// `reused`: an id may come again for another turn, which begins with what the person typed.
pub fn by_turn<'a, T: PartialEq>(lines: &'a [(Option<T>, String)], reused: bool) -> Vec<String> {
    let mut turns: Vec<(usize, &T)> = Vec::new();
    let mut begun = 0;
    let mut lines_of = |(turn, line): &'a (Option<T>, String)| {
        let Some(turn) = turn else { return line.clone() };
        let known = turns.iter().rposition(|(_, known)| *known == turn);
        let known = known.filter(|_| !(reused && line.starts_with("user: "))).map(|at| turns[at].0);
        let number = known.unwrap_or_else(|| {
            begun += 1;
            turns.push((begun, turn));
            begun
        });
        format!("{number} {line}")
    };
    lines.iter().map(&mut lines_of).collect()
}

impl Reference {
    /// The person typed something. Returns its number.
    pub fn ask(&mut self, lines: Vec<String>) -> usize {
        self.turn = self.said.len();
        self.say(lines)
    }

    /// Something else was said, in the turn that the person began last. Returns its number.
    pub fn say(&mut self, lines: Vec<String>) -> usize {
        let number = self.sum_up(lines);
        self.said[number].turn = Some(self.turn);
        self.held.live.push(number);
        number
    }

    /// A summary is at hand, to be kept by the compaction that it is of.
    pub fn sum_up(&mut self, lines: Vec<String>) -> usize {
        self.said.push(Said { lines, turn: None, shown: false });
        self.said.len() - 1
    }

    /// A mirror has caught up: it shows what Hermes holds and it has not shown.
    pub fn catch_up(&mut self) {
        for number in self.held.all() {
            let said = &mut self.said[number];
            // A boundary needs something to stand behind.
            let nothing_before = self.transcript.is_empty() && said.lines[0].starts_with("compaction");
            if !std::mem::replace(&mut said.shown, true) && !nothing_before {
                self.transcript.extend(said.lines.iter().map(|line| (said.turn, line.clone())));
            }
        }
    }

    /// A compaction in place: what was live stays as history, and `kept` goes on.
    pub fn archive(&mut self, kept: Vec<usize>) {
        self.held.archived.append(&mut self.held.live);
        self.held.live = kept;
    }

    /// A compaction into a child session: all that the parent holds stays with it.
    pub fn leave_behind(&mut self, kept: Vec<usize>) {
        self.archive(kept);
        self.held.left_behind.append(&mut self.held.archived);
    }

    /// The person took these back.
    pub fn take_back(&mut self, taken: &[usize]) {
        self.held.live.retain(|number| !taken.contains(number));
    }

    /// The person changed their mind about that.
    pub fn give_back(&mut self, given: &[usize]) {
        self.held.live.extend_from_slice(given);
    }

    /// Edit and resend: only `kept` is left; the archive too goes where `thoroughly`.
    pub fn cut(&mut self, kept: Vec<usize>, thoroughly: bool) {
        if thoroughly {
            self.held.archived.clear();
            self.join_turns(&kept);
        }
        self.held.live = kept;
    }

    /// What is held no more can't be known of what is left: an answer that nobody saw belongs to what was typed before it.
    fn join_turns(&mut self, kept: &[usize]) {
        let left: Vec<usize> = self.held.left_behind.iter().chain(kept).copied().collect();
        let mut before = None;
        for number in &left {
            let said = &mut self.said[*number];
            match said.turn {
                Some(turn) if turn == *number => before = Some(turn),
                Some(turn) if !said.shown && !left.contains(&turn) => said.turn = before.or(said.turn),
                _ => {}
            }
        }
    }

    pub fn was_shown(&self, number: usize) -> bool {
        self.said[number].shown
    }

    pub fn transcript(&self) -> Vec<String> {
        by_turn(&self.transcript, false)
    }

    pub fn held(&self) -> Held {
        self.held.clone()
    }

    /// An older copy of the database was put in place: what came since is gone, and stays shown where it was.
    pub fn restore(&mut self, older: Held) {
        self.held = older;
    }

    /// Whether a mirror that has shown anything has shown all that an older copy holds: history is not replayed.
    pub fn has_passed(&self, older: &Held) -> bool {
        self.transcript.is_empty() || older.all().all(|number| self.said[number].shown)
    }
}
