//! A first configuration: what is found, what is written, and what is said where something is missing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is to fail its test")]
#![allow(clippy::disallowed_methods, reason = "files of the tests' own")]

mod support;

use std::fs;
use std::process::Command;

use hermes_mirror::config;
use support::mirror::{World, write};

/// A world with Hermes's default database, in which the program runs.
fn world(databases: &[&str]) -> World {
    let world = World::new();
    for database in databases {
        write(&world.path("home").join(database), "");
    }
    world
}

fn init(world: &World, arguments: &[&str]) -> Command {
    let mut command = world.command();
    command.env("RUST_LOG", "error").current_dir(world.workspace()).arg("init").args(arguments);
    command
}

/// What is said and with which exit code, with the places of this world under names that are always the same.
fn said(world: &World, command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let text = format!("{} {}{}", output.status.code().unwrap(), text(output.stdout), text(output.stderr));
    let root = world.path("");
    text.replace(root.to_str().unwrap().trim_end_matches('/'), "[dir]").replace(&world.sink.url(), "[server]")
}

#[test]
fn what_is_found_is_written_and_passes_the_check() {
    let world = world(&[".hermes/state.db"]);
    let url = world.sink.url();
    insta::assert_snapshot!("written", said(&world, &mut init(&world, &["--base-url", &url])));
    let file = world.workspace().join("pipeline.toml");
    let text = fs::read_to_string(&file).unwrap();
    let shown = text.replace(&url, "[server]").replace(world.path("").to_str().unwrap(), "[dir]/");
    insta::assert_snapshot!("file", shown);
    let config = config::load(&file).unwrap();
    assert_eq!((config.mirror.len(), &config.deliver.base_url), (1, &url));
    let mut check = world.command();
    let check = check.current_dir(world.workspace()).args(["check", "--offline"]).output().unwrap();
    assert!(String::from_utf8_lossy(&check.stdout).starts_with("configuration: ok"), "{check:?}");
}

#[test]
fn a_file_that_is_there_stays_as_it_is() {
    let world = world(&[".hermes/state.db"]);
    let file = world.workspace().join("pipeline.toml");
    write(&file, "mine");
    let said = said(&world, &mut init(&world, &[]));
    assert!(said.starts_with("2 error: pipeline.toml is there already"), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn a_link_that_leads_nowhere_is_not_written_through() {
    let world = world(&[".hermes/state.db"]);
    std::os::unix::fs::symlink(world.path("elsewhere"), world.workspace().join("pipeline.toml")).unwrap();
    let said = said(&world, &mut init(&world, &[]));
    assert!(said.starts_with("2 error: pipeline.toml is there already"), "{said}");
    assert!(!world.path("elsewhere").exists());
}

#[test]
fn without_hermes_nothing_is_written_and_it_is_said_where_it_was_looked_for() {
    let world = world(&[]);
    insta::assert_snapshot!("no_hermes", said(&world, &mut init(&world, &[])));
    let elsewhere = said(&world, init(&world, &[]).env("HERMES_HOME", world.path("gone")));
    assert!(elsewhere.contains("at [dir]/gone/state.db (from HERMES_HOME)"), "{elsewhere}");
    assert!(!world.workspace().join("pipeline.toml").exists());
}

#[test]
fn among_several_profiles_none_is_guessed_and_one_can_be_named() {
    let both = [".hermes/state.db", ".hermes/profiles/work/state.db"];
    let world = world(&both);
    insta::assert_snapshot!("two_profiles", said(&world, &mut init(&world, &[])));
    let named = said(&world, init(&world, &[]).env("HERMES_HOME", world.path("home/.hermes/profiles/work")));
    assert!(named.contains("  database   ~/.hermes/profiles/work/state.db\n"), "{named}");
}

#[test]
fn a_profile_that_is_the_only_one_is_taken() {
    let world = world(&[".hermes/profiles/work/state.db"]);
    let said = said(&world, &mut init(&world, &[]));
    assert!(said.contains("  database   ~/.hermes/profiles/work/state.db\n"), "{said}");
}

#[test]
fn a_server_that_is_away_is_told_of_and_waited_for() {
    let world = world(&[".hermes/state.db"]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let said = said(&world, &mut init(&world, &["--base-url", &url]));
    assert!(said.starts_with("0 pipeline.toml written\n"), "{said}");
    assert_eq!((said.matches("warn server: ").count(), said.matches("help: ").count()), (1, 1), "{said}");
}

#[test]
fn a_place_that_cannot_be_written_and_a_workspace_that_is_none() {
    let world = world(&[".hermes/state.db"]);
    let unwritable = said(&world, &mut init(&world, &["--config", "/dev/null/p.toml"]));
    insta::assert_snapshot!("unwritable", unwritable);
    let workspace = said(&world, &mut init(&world, &["--workspace", "gone"]));
    assert!(workspace.starts_with("2 error: --workspace: [dir]/work/gone is not a directory"), "{workspace}");
    let login = said(&world, &mut init(&world, &["--base-url", "http://u:hunter2@h"]));
    assert!(
        login.starts_with("2 error: --base-url has a user name") && !login.contains("hunter2"),
        "{login}"
    );
}
