//! The program as a person meets it: help, messages, exit codes.

#![allow(
    clippy::unwrap_used,
    reason = "what can't be started can't be tested, and the helpers are tests too"
)]
#![allow(clippy::disallowed_methods, reason = "files of the tests' own")]

use std::fs;
use std::io::pipe;
use std::path::Path;
use std::process;

use assert_cmd::Command;
use assert_cmd::cargo::{cargo_bin, cargo_bin_cmd};

const SUBCOMMANDS: [&str; 14] = [
    "demo",
    "init",
    "run",
    "attach",
    "check",
    "status",
    "sessions",
    "tail",
    "dead-letters",
    "serve",
    "service",
    "schema",
    "completions",
    "man",
];

/// What of the environment would change an answer.
const VARIABLES: [&str; 7] = [
    "HERMES_STATE_DB",
    "HERMES_HOME",
    "XDG_STATE_HOME",
    "RUST_LOG",
    "RUST_BACKTRACE",
    "COLUMNS",
    "OMNIGENT_TOKEN",
];

/// The program in an environment that is the same everywhere.
fn program(arguments: &[&str]) -> Command {
    let mut command = cargo_bin_cmd!("hermes-mirror");
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    command.env("HOME", "/home/ada").args(arguments);
    command
}

/// What the program says and how it ends, as one text.
fn answer(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    format!("exit code {code}\n--- stdout\n{}--- stderr\n{}", text(output.stdout), text(output.stderr))
}

/// Checks one of the configurations in `tests/broken` against its snapshot.
fn broken(name: &str) {
    let file = format!("{name}.toml");
    let mut command = program(&["check", "--offline", "--config", &file]);
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken"));
    let answer = answer(&mut command);
    assert!(!answer.contains("hunter2"), "a secret is shown: {answer}");
    insta::assert_snapshot!(format!("broken_{name}"), answer);
}

#[test]
fn a_mirror_of_many_that_says_too_much_or_too_little() {
    broken("13_match");
}

#[test]
fn help_names_every_subcommand_option_and_exit_code() {
    insta::assert_snapshot!("help", answer(&mut program(&["--help"])));
    for subcommand in SUBCOMMANDS {
        insta::assert_snapshot!(format!("help_{subcommand}"), answer(&mut program(&[subcommand, "--help"])));
    }
    for [command, action] in [["dead-letters", "replay"], ["dead-letters", "purge"], ["service", "install"]] {
        let help = answer(&mut program(&[command, action, "--help"]));
        insta::assert_snapshot!(format!("help_{command}_{action}"), help);
    }
}

#[test]
fn help_is_the_same_on_any_terminal() {
    let narrow = answer(program(&["attach", "--help"]).env("COLUMNS", "40"));
    assert_eq!(narrow, answer(&mut program(&["attach", "--help"])));
}

#[test]
fn lines_that_are_not_toml_are_shown_beside_other_problems() {
    broken("01_syntax");
}

#[test]
fn unknown_keys_are_told_the_nearest_known_one_or_the_table_they_belong_to() {
    broken("02_unknown_keys");
}

#[test]
fn values_of_the_wrong_type_say_what_to_write() {
    broken("03_types");
}

#[test]
fn values_out_of_range_say_the_range_and_the_default() {
    broken("04_ranges");
}

#[test]
fn a_mirror_says_what_it_lacks() {
    broken("05_mirror_incomplete");
}

#[test]
fn two_mirrors_of_one_thing_are_both_shown() {
    broken("06_mirror_twice");
}

#[test]
fn single_brackets_are_told_to_be_double() {
    broken("07_single_brackets");
}

#[test]
fn a_password_in_the_server_address_is_refused_and_masked() {
    broken("08_server");
}

#[test]
fn a_token_in_the_file_is_refused_and_masked() {
    broken("09_token");
}

#[test]
fn a_launch_that_cannot_be_and_a_key_given_twice() {
    broken("10_launch");
}

#[test]
fn a_pattern_that_is_none_is_shown_with_the_reason() {
    broken("11_patterns");
    broken("12_patterns");
}

#[test]
fn a_status_that_others_could_see_is_refused() {
    broken("13_status");
}

#[test]
fn a_missing_file_says_what_to_do() {
    for subcommand in ["run", "check"] {
        insta::assert_snapshot!(
            format!("missing_file_{subcommand}"),
            answer(&mut program(&[subcommand, "--config", "nowhere.toml"]))
        );
    }
}

#[test]
fn a_good_file_is_summed_up_as_this_environment_resolves_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("p.toml");
    let text = "[deliver]\nbase_url = \"http://omnigent.example\"\n[deliver.auth.env]\nname = \"OMNIGENT_TOKEN\"\n\
                [[mirror]]\nconversation = \"conv_1\"\nworkspace = \"~/work\"\n\
                [[mirror]]\nconversation = \"conv_2\"\nsession = \"20261129_202802_c4825e\"\n";
    fs::write(&file, text).unwrap();
    let mut command = program(&["check", "--offline", "--config", "p.toml"]);
    command.current_dir(directory.path()).env("HERMES_HOME", "/srv/hermes");
    insta::assert_snapshot!("check_ok", answer(&mut command));
}

#[test]
fn a_broken_world_fails_the_check_and_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    fs::create_dir(path.join("state.db")).unwrap();
    fs::write(path.join("bridge"), "").unwrap();
    let text = "[source]\ndb = \"state.db\"\n[deliver.auth.env]\nname = \"OMNIGENT_TOKEN\"\n\
                [[mirror]]\nconversation = \"conv_1\"\nworkspace = \"gone\"\nbridge_dir = \"bridge\"\n";
    fs::write(path.join("p.toml"), text).unwrap();
    let mut command = program(&["check", "--config", "p.toml"]);
    command.current_dir(&path);
    let answer = answer(&mut command).replace(path.to_str().unwrap(), "[dir]");
    assert!(answer.starts_with("exit code 1"), "{answer}");
    for line in [
        "FAIL database: [dir]/state.db is not a file",
        "warn mirror conv_1: workspace [dir]/gone can't be reached",
        "FAIL mirror conv_1: bridge_dir [dir]/bridge is not a directory",
        "FAIL token: the environment variable OMNIGENT_TOKEN is not set",
    ] {
        assert!(answer.contains(line), "{line} is not in\n{answer}");
    }
}

#[test]
fn a_file_without_a_mirror_is_checked_with_a_warning_and_not_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.toml");
    fs::write(&path, "").unwrap();
    let arguments = |subcommand| vec![subcommand, "--config", path.to_str().unwrap()];
    program(&arguments("run")).assert().code(2);
    let mut check = arguments("check");
    check.push("--offline");
    let assert = program(&check).assert().code(0);
    assert!(
        String::from_utf8_lossy(&assert.get_output().stdout).contains("warn mirror: there is no [[mirror]]")
    );
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for arguments in [
        &[][..],
        &["nonsense"],
        &["run", "--nonsense"],
        &["run", "--log-format", "xml"],
        &["attach"],
        &["completions", "tcsh"],
        &["man", "nonsense"],
    ] {
        program(arguments).assert().code(2);
    }
    program(&["schema"]).env("RUST_LOG", "a=b=c").assert().code(2);
}

#[test]
fn attach_refuses_what_no_file_may_say_without_repeating_it() {
    let flags = ["--bridge-dir", "/b", "--workspace", "/w"];
    for [url, conversation, launch] in [
        ["http://u:hunter2@host", "conv_1", "1"],
        ["http://host", "a/hunter2", "1"],
        ["http://host", "conv_1", "-5"],
        ["http://host", "conv_1", "nan"],
    ] {
        let mut arguments =
            vec!["attach", "--base-url", url, "--conversation", conversation, "--launch-epoch", launch];
        arguments.extend(flags);
        let answer = answer(&mut program(&arguments));
        assert!(answer.starts_with("exit code 2"), "{answer}");
        assert!(answer.contains("\nerror: --") && answer.contains("\nhelp: "), "{answer}");
        assert!(!answer.contains("hunter2"), "{answer}");
    }
}

#[test]
fn completions_and_manual_mention_every_subcommand() {
    for arguments in
        [&["completions", "bash"][..], &["completions", "zsh"], &["completions", "fish"], &["man"]]
    {
        let assert = program(arguments).assert().success();
        // A hyphen that is no line break's is escaped in a manual.
        let text = String::from_utf8(assert.get_output().stdout.clone()).unwrap().replace("\\-", "-");
        for subcommand in SUBCOMMANDS {
            assert!(text.contains(subcommand), "{arguments:?} does not mention {subcommand}");
        }
    }
    for subcommand in SUBCOMMANDS {
        let assert = program(&["man", subcommand]).assert().success();
        let text = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
        assert!(text.contains(&format!(".TH hermes-mirror-{subcommand} 1")), "{text}");
    }
    let assert = program(&["man", "dead-letters", "replay"]).assert().success();
    let text = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    assert!(text.contains(".TH hermes-mirror-dead-letters-replay 1"), "{text}");
}

#[test]
fn the_schema_is_json_and_lists_every_table() {
    let assert = program(&["schema"]).assert().success();
    let schema: serde_json::Value = serde_json::from_slice(&assert.get_output().stdout).unwrap();
    let tables: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(
        tables,
        ["source", "detect", "read", "transform", "turns", "deliver", "state", "status", "hooks", "mirror"]
    );
    let deliver = &schema["$defs"]["Deliver"]["properties"];
    assert!(deliver["retry"].is_object() && deliver["auth"].is_object());
}

#[test]
fn the_log_is_text_or_json_on_stderr_and_the_environment_wins() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.toml");
    fs::write(&path, "").unwrap();
    let check = ["check", "--offline", "-v", "--config", path.to_str().unwrap()];
    let log = |command: &mut Command| String::from_utf8(command.output().unwrap().stderr).unwrap();

    let text = log(&mut program(&check));
    assert!(text.contains("located the database") && !text.contains('\u{1b}'), "{text}");
    let json = log(program(&check).args(["--log-format", "json"]));
    let line: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(line["message"], "located the database");
    assert_eq!(log(program(&check).env("RUST_LOG", "warn")), "");
    assert_eq!(log(program(&check).arg("-q")), "");
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    for arguments in [&["schema"][..], &["completions", "bash"], &["man"], &["--help"], &["run", "--help"]] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let mut command = process::Command::new(cargo_bin!("hermes-mirror"));
        let output = command.args(arguments).stdout(writer).stderr(process::Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
}

#[test]
fn the_exit_code_tells_even_where_nobody_reads_the_messages() {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let mut command = process::Command::new(cargo_bin!("hermes-mirror"));
    let status = command.args(["-vvv", "check", "--config", "nowhere.toml"]).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(2));
}
