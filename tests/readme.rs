//! What the documents say is done as they say it: their commands, tables, steps and links are those of this program.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is to fail its test")]

mod support;

#[path = "support/document.rs"]
mod document;
#[allow(dead_code, reason = "each test binary uses its part")]
#[path = "support/request.rs"]
mod request;
#[path = "support/served.rs"]
mod served;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use document::{Document, read, root};
use regex::Regex;
use served::Served;
use support::hermes_db::{HermesDb, Message, now};
use support::mirror::{Mirror, write};
use tempfile::TempDir;

/// The server's address in the documents.
const ADDRESS: &str = "http://127.0.0.1:6767";
const STEPS: &str = "Mirror your own terminal";

/// A machine with nothing on it but the program.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The program as it is called in the home directory.
    fn program(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hermes-mirror"));
        command.env_clear().env("HOME", self.path("")).current_dir(self.path("")).args(arguments);
        command
    }

    /// What a command says that must end well.
    fn says(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.program(arguments).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        if output.status.success() { Ok(text) } else { Err(text) }
    }

    /// What Hermes has made by its first start, and the directory that a terminal is to work in.
    fn hermes(&self) -> HermesDb {
        std::fs::create_dir_all(self.path("work/project")).unwrap();
        std::fs::create_dir_all(self.path(".hermes")).unwrap();
        HermesDb::create(&self.path(".hermes/state.db"))
    }

    /// The embedded server, keeping its conversations where it does by default.
    fn serve(&self) -> Served {
        Served::spawn(self.program(&["serve", "--port", "0"]))
    }
}

/// Waits until the page of a conversation is told of `said`.
fn expect_shown(server: &Served, conversation: &str, said: &str) {
    let path = format!("/page/updates?conversation={conversation}&after=0");
    server.stream(&path, |events| events.iter().any(|event| event.to_string().contains(said)));
}

/// Follows the steps with this `pipeline.toml`; the mirror has begun once it logs `begun`.
fn walk(readme: &Document, toml: &str, begun: &str) {
    let machine = Machine::new();
    let mut db = machine.hermes();
    let server = machine.serve();
    assert!(toml.contains(ADDRESS), "{toml}");
    write(&machine.path("pipeline.toml"), &toml.replace(ADDRESS, &server.url()));
    machine.says(&["check"]).unwrap();
    let mirror = Mirror::spawn(machine.program(&["run"]));
    mirror.wait_for_log(begun);

    db.session("s", Some(&machine.path("work/project")));
    db.turn("s", "What is the tallest tree?", "A redwood.");
    mirror.wait_for_log("made a conversation");
    let log = mirror.log();
    let id = Regex::new(r"made a conversation.* conversation=(\S+)").unwrap().captures(&log).unwrap()[1]
        .to_owned();
    let page = readme.spans().into_iter().find(|span| span.starts_with(ADDRESS) && span.ends_with("THAT-ID"));
    let page = page.unwrap().replace(ADDRESS, "").replace("THAT-ID", &id);
    assert_eq!(server.call("GET", &page, None).0, 200, "{page}");
    expect_shown(&server, &id, "What is the tallest tree?");
    expect_shown(&server, &id, "A redwood.");
}

#[test]
fn the_steps_of_the_readme_lead_to_the_message_at_the_address_that_it_names() {
    let readme = Document::open("README.md");
    let tables: Vec<&str> = readme
        .blocks()
        .iter()
        .filter(|block| block.section == STEPS && block.language == "toml")
        .map(|block| block.text.as_str())
        .collect();
    let [one, every] = tables[..] else { panic!("one terminal, then every session: {tables:?}") };
    walk(&readme, one, "no session fits yet");
    let (server, _) = one.split_once("[[mirror]]").unwrap();
    walk(&readme, &format!("{server}{every}"), "looking for sessions that match");
}

#[test]
fn what_a_runner_is_told_to_start_mirrors_its_terminal() {
    for document in [Document::open("README.md"), Document::open("docs/runner.md")] {
        let commands = document.commands();
        let attach = commands.iter().find(|command| command.starts_with("hermes-mirror attach ")).unwrap();
        let machine = Machine::new();
        let mut db = machine.hermes();
        let server = machine.serve();
        let (conversation, url, launch) = (server.new_conversation(), server.url(), now().to_string());
        let fill = |word| match word {
            "URL" => &url,
            "ID" => &conversation,
            "SECONDS" => &launch,
            "DIR" => "work/project",
            other => other,
        };
        let arguments: Vec<&str> = attach.split(' ').skip(1).map(fill).collect();
        let _mirror = Mirror::spawn(machine.program(&arguments));
        db.session("s", Some(&machine.path("work/project")));
        db.append("s", &Message::user("What is the tallest tree?"));
        expect_shown(&server, &conversation, "What is the tallest tree?");
    }
}

/// Whether the program takes these arguments, words in capitals standing for values.
fn is_taken(arguments: &[&str]) -> Result<(), String> {
    let fill = |word| match word {
        "N" | "PORT" | "SECONDS" => "1",
        other => other,
    };
    // The parser comes upon it last, and refuses before what it does not know.
    let arguments: Vec<&str> = arguments.iter().copied().map(fill).chain(["--help"]).collect();
    Machine::new().says(&arguments).map(drop)
}

fn exists(path: &str) -> Result<(), String> {
    if root(path).exists() { Ok(()) } else { Err(format!("there is no {path}")) }
}

fn is_script(path: &str, options: &[&str]) -> Result<(), String> {
    exists(path)?;
    let mode = std::fs::metadata(root(path)).unwrap().permissions().mode();
    let text = read(&root(path));
    match options.iter().find(|option| !text.contains(*option)) {
        _ if mode & 0o111 == 0 => Err("it can't be executed".to_owned()),
        Some(option) => Err(format!("it does not know {option}")),
        None => Ok(()),
    }
}

/// Whether a command can be typed today.
fn verify(command: &str) -> Result<(), String> {
    let words: Vec<&str> = command.trim_start_matches("./").split(' ').collect();
    match words[..] {
        ["hermes-mirror", ref arguments @ ..] | ["cargo", "run", "--release", "--", ref arguments @ ..] => {
            is_taken(arguments)
        }
        ["cargo", "install", "--path", "."] => exists("src/main.rs"),
        ["cargo", "package"] => exists("Cargo.toml"),
        ["cargo", "bench", "--bench", name] => exists(&format!("benches/{name}.rs")),
        ["cargo", "bench", "--bench", name, "--", ref options @ ..] => {
            let text =
                read(&root(&format!("benches/{name}.rs"))) + &read(&root("benches/support/options.rs"));
            let is_known = |option: &&str| text.contains(&format!("{}: ", option.trim_start_matches("--")));
            let unknown =
                options.iter().filter(|option| option.starts_with("--")).find(|option| !is_known(option));
            unknown.map_or(Ok(()), |option| Err(format!("the benchmark does not know {option}")))
        }
        ["cargo", "test", "--test", name] => exists(&format!("tests/{name}.rs")),
        [script, ref options @ ..] if script.starts_with("scripts/") => is_script(script, options),
        _ => Err("no rule of this test knows it".to_owned()),
    }
}

#[test]
fn every_command_in_a_document_can_be_typed() {
    for document in Document::all() {
        for command in document.commands() {
            verify(&command).unwrap_or_else(|error| panic!("{}: `{command}`: {error}", document.name));
        }
    }
    assert!(Document::open("README.md").commands().len() >= 8, "the commands were not found");
    for wrong in
        ["hermes-mirror run --nonsense", "hermes-mirror nonsense", "scripts/test --nonsense", "cargo fly"]
    {
        assert!(verify(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn every_option_that_is_named_with_its_subcommand_exists() {
    let machine = Machine::new();
    let help = machine.says(&["--help"]).unwrap();
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let subcommands = commands.lines().take_while(|line| !line.is_empty());
    let subcommands: Vec<&str> = subcommands.map(|line| line.split_whitespace().next().unwrap()).collect();
    assert!(subcommands.contains(&"dead-letters"), "{subcommands:?}");
    for document in Document::all() {
        for span in document.spans() {
            let mut words = span.split(' ');
            let subcommand = words.next().filter(|word| subcommands.contains(word));
            let option = words.next().filter(|word| word.starts_with("--"));
            let (Some(subcommand), Some(option)) = (subcommand, option) else { continue };
            let help = machine.says(&[subcommand, "--help"]).unwrap();
            assert!(help.contains(option), "{}: `{span}` does not exist", document.name);
        }
    }
}

#[test]
fn every_table_of_settings_in_a_document_is_valid() {
    for document in Document::all() {
        for block in document.blocks() {
            let Some(name) = ["sh", "toml", "text"].iter().find(|name| **name == block.language) else {
                panic!("{}: no rule of this test knows `{}` blocks", document.name, block.language);
            };
            if *name == "toml" {
                let machine = Machine::new();
                write(&machine.path("pipeline.toml"), &block.text);
                // What the world lacks is not the file's fault.
                let said = machine.says(&["check", "--offline"]).unwrap_or_else(|said| said);
                assert!(said.contains("configuration: ok"), "{}: {said}\n{}", document.name, block.text);
            }
        }
    }
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    for document in Document::all() {
        for (file, heading) in document.links() {
            let shown = file.display();
            assert!(file.exists(), "{}: there is no {shown}", document.name);
            if !heading.is_empty() {
                let name = file.strip_prefix(root("")).unwrap().to_str().unwrap();
                let anchors = Document::open(name.trim_start_matches("docs/../")).anchors();
                assert!(anchors.contains(&heading), "{}: {shown} has no #{heading}", document.name);
            }
        }
    }
}

/// The program's source, each text of several lines as the one that it is.
fn source(directory: &Path) -> String {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let texts = entries.map(|path| match path.extension() {
        None => source(&path),
        Some(extension) if extension == "rs" => read(&path),
        Some(_) => String::new(),
    });
    Regex::new(r"\\\n\s*").unwrap().replace_all(&texts.collect::<String>(), "").into_owned()
}

#[test]
fn every_message_that_is_explained_is_one_of_the_program() {
    let operations = Document::open("docs/operations.md");
    let rows = operations.section("What the log says, and what to do").lines();
    let messages: Vec<&str> =
        rows.filter_map(|row| Some(row.strip_prefix("| `")?.split_once('`')?.0)).collect();
    assert!(messages.len() > 20, "the messages were not found: {messages:?}");
    let source = source(&root("src"));
    for message in messages {
        let is_said = message.split('…').all(|part| source.contains(part.trim()));
        assert!(is_said, "{}: nothing says `{message}`", operations.name);
    }
}
