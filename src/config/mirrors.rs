//! The `[[mirror]]` tables.

use std::path::PathBuf;

use super::choice::{ALL, Choice, Glob, History};
use super::diagnostic::Diagnostic;
use super::problems::Problems;
use super::reader::{Found, Reader};
use super::validate::require;
use super::{Mirror, rules};

/// What a mirror of one session has, and one of many has not.
const OF_ONE: [&str; 4] = ["session", "workspace", "launch_epoch", "bridge_dir"];

/// What no two mirrors may have in common.
#[derive(Default)]
struct Taken {
    conversations: Vec<Found<String>>,
    bridge_dirs: Vec<Found<PathBuf>>,
    /// Of those whose conversations are made.
    sessions: Vec<Found<(Option<PathBuf>, String)>>,
    terminals: Vec<Found<Terminal>>,
}

#[derive(PartialEq)]
struct Terminal {
    db: Option<PathBuf>,
    workspace: PathBuf,
    launch_epoch: Option<f64>,
}

/// Reads all of them.
pub(super) fn read(tables: Vec<Reader<'_>>, problems: &Problems<'_>) -> Vec<Mirror> {
    let mut taken = Taken::default();
    tables.into_iter().map(|table| mirror(table, &mut taken, problems)).collect()
}

fn mirror(mut table: Reader<'_>, taken: &mut Taken, problems: &Problems<'_>) -> Mirror {
    let is_of_many = table.has("match");
    if is_of_many {
        for key in OF_ONE {
            let help = "each session that matches has its own: take one of the two out";
            table.refuse_beside(key, "match", help);
        }
    } else {
        let help = "add `conversation = \"new\"`, to have one made, or the id of the conversation to feed";
        require(&table, "conversation", "[[mirror]]", help);
        table.refuse_without("exclude", "match", "add `match = \"all\"`, or take it out");
        if !table.has("session") && !table.has("workspace") {
            table.missing(
                "[[mirror]] names neither `workspace` nor `session`, nor has it `match`".to_owned(),
                "add `workspace = \"…\"`, the directory the Hermes terminal works in, `session = \"…\"`, its session's id, \
                 or `match = \"all\"` for every session",
            );
        }
    }
    let conversation = table.text_by("conversation", rules::conversation);
    let bridge_dir = table.path("bridge_dir");
    let session = table.text_by("session", rules::not_empty);
    let workspace = table.path("workspace");
    let mirror = Mirror {
        conversation: match &conversation {
            Some(found) => found.value.clone(),
            None if is_of_many => super::new_conversation(),
            None => String::new(),
        },
        matching: table.table_or("match", (ALL, Choice::default()), choice),
        exclude: table.present_table("exclude").map(choice).unwrap_or_default(),
        db: table.path("db").map(|db| db.value),
        session: session.as_ref().map(|session| session.value.clone()),
        workspace: workspace.as_ref().map(|workspace| workspace.value.clone()),
        launch_epoch: launch_epoch(&mut table),
        bridge_dir: bridge_dir.as_ref().map(|found| found.value.clone()),
        sources: sources(&mut table),
        history: history(&mut table),
        agent_name: table.text_by("agent_name", rules::not_empty).map(|name| name.value),
    };
    if is_of_many && !mirror.makes_conversation() {
        table.refuse_beside("conversation", "match", "each session that matches has its own: take it out");
    }
    taken.note(&mirror, (conversation, bridge_dir, session, workspace), problems);
    table.finish();
    mirror
}

type Names = (Option<Found<String>>, Option<Found<PathBuf>>, Option<Found<String>>, Option<Found<PathBuf>>);

impl Taken {
    fn note(
        &mut self,
        mirror: &Mirror,
        (conversation, bridge_dir, session, workspace): Names,
        problems: &Problems<'_>,
    ) {
        if mirror.makes_conversation() {
            let why = "the second conversation would show the same session";
            let of_session = session.is_some();
            let session = session.map(|found| found.with(|session| (mirror.db.clone(), session)));
            unique("session", why, &mut self.sessions, session, problems);
            let terminal = workspace.filter(|_| !of_session).map(|found| {
                let (db, launch_epoch) = (mirror.db.clone(), mirror.launch_epoch);
                found.with(|workspace| Terminal { db, workspace, launch_epoch })
            });
            unique("workspace", why, &mut self.terminals, terminal, problems);
        } else {
            let why = "one conversation takes one mirror";
            unique("conversation", why, &mut self.conversations, conversation, problems);
        }
        let why = "a bridge directory holds one cursor";
        unique("bridge_dir", why, &mut self.bridge_dirs, bridge_dir, problems);
    }
}

fn choice(mut table: Reader<'_>) -> Choice {
    if !table.has("workspace") && !table.has("title") {
        table.missing(
            "this table names neither `workspace` nor `title`".to_owned(),
            "add one, or write `match = \"all\"` in its place",
        );
    }
    let directories = globs(&mut table, "workspace", r#"["~/work"]"#, |table, found| {
        Glob::directory(&table.resolve("workspace", &found.value, &found.span))
    });
    let titles = globs(&mut table, "title", r#"["*release*"]"#, |_, found| Glob::title(&found.value));
    table.finish();
    Choice { workspace: directories, title: titles }
}

fn globs(
    table: &mut Reader<'_>,
    key: &'static str,
    example: &str,
    read: impl Fn(&Reader<'_>, &Found<String>) -> Option<Glob>,
) -> Vec<Glob> {
    let mut globs = Vec::new();
    for text in texts(table, key, example) {
        if let Some(glob) = read(table, &text) {
            globs.push(glob);
        } else {
            let long = rules::ValueError { message: "has a pattern that is too long", help: "shorten it" };
            table.refuse(key, text.span, &long);
        }
    }
    globs
}

/// A list of texts of which none is empty, and neither is the list.
fn texts(table: &mut Reader<'_>, key: &'static str, example: &str) -> Vec<Found<String>> {
    let Some(list) = table.texts(key, example) else { return Vec::new() };
    if list.value.is_empty() {
        let none = rules::ValueError { message: "is empty", help: "name one, or take the line out" };
        table.refuse(key, list.span, &none);
    }
    let mut texts = Vec::new();
    for text in list.value {
        match rules::not_empty(&text.value) {
            Ok(()) => texts.push(text),
            Err(error) => table.refuse(key, text.span, &error),
        }
    }
    texts
}

fn sources(table: &mut Reader<'_>) -> Vec<String> {
    if !table.has("sources") {
        let _ = table.texts("sources", "");
        return super::default_sources();
    }
    texts(table, "sources", r#"["cli", "tui"]"#).into_iter().map(|source| source.value).collect()
}

fn history(table: &mut Reader<'_>) -> Option<History> {
    if !table.has("history") {
        let _ = table.choice("history", &History::WORDS, History::All);
        return None;
    }
    if table.holds_integer("history") {
        let Found { value, span } = table.number("history")?;
        if !(1.0..=f64::from(History::MOST_ROWS)).contains(&value) {
            let help = "write 1 to 1000000, or one of \"none\", \"open-turn\" and \"all\"";
            let out = rules::ValueError { message: "is out of range", help };
            table.refuse("history", span, &out);
            return None;
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number in this range"
        )]
        return Some(History::Rows(value as u32));
    }
    Some(table.choice("history", &History::WORDS, History::All))
}
fn launch_epoch(table: &mut Reader<'_>) -> Option<f64> {
    let Found { value, span } = table.number("launch_epoch")?;
    if let Err(error) = rules::launch_epoch(value) {
        table.refuse("launch_epoch", span, &error);
        return None;
    }
    Some(value)
}

/// Reports `new` where an earlier mirror has the same; otherwise remembers it.
fn unique<T: PartialEq>(
    key: &str,
    why: &str,
    earlier: &mut Vec<Found<T>>,
    new: Option<Found<T>>,
    problems: &Problems<'_>,
) {
    let Some(new) = new else { return };
    match earlier.iter().find(|one| one.value == new.value) {
        Some(first) => problems.report(Diagnostic {
            span: new.span,
            message: format!("two [[mirror]] have the same `{key}`"),
            label: "again here".to_owned(),
            help: Some(format!("{why}: take one of the two out, or change it")),
            related: Some((first.span.clone(), "first here".to_owned())),
        }),
        None => earlier.push(new),
    }
}
