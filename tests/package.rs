//! What a published package holds.
#![allow(clippy::unwrap_used, reason = "what can't be started can't be tested")]

use std::collections::BTreeSet;
use std::process::Command;

#[test]
fn a_package_holds_what_builds_the_program_and_what_its_user_reads_and_nothing_else() {
    let mut command = Command::new(env!("CARGO"));
    command.args(["package", "--list", "--allow-dirty", "--offline"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let list = String::from_utf8(output.stdout).unwrap();
    let top: BTreeSet<&str> = list.lines().map(|file| file.split('/').next().unwrap_or(file)).collect();
    // Whether the checkout is a repository decides on the first.
    let top: Vec<&str> = top.into_iter().filter(|name| *name != ".cargo_vcs_info.json").collect();
    let expected = [
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "Cargo.lock",
        "Cargo.toml",
        "Cargo.toml.orig",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "README.md",
        "SECURITY.md",
        "docs",
        "pipeline.toml",
        "src",
    ];
    assert_eq!(top, expected, "{said}");
    let snapshots = list.lines().filter(|file| file.ends_with(".snap.new")).collect::<Vec<_>>();
    assert!(snapshots.is_empty(), "{snapshots:?}");
}
