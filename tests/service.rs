//! The mirror under systemd, as a `systemctl` that notes what it is told sees it.
#![cfg(not(target_os = "macos"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is to fail its test")]
#![allow(clippy::disallowed_methods, reason = "files of the tests' own")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use support::mirror::{World, write};

/// Notes what it is told; one of its verbs fails where a file says so.
const SYSTEMCTL: &str = "#!/bin/sh
echo \"$*\" >> \"$0.told\"
case \"$*\" in *status*) echo 'active (running)';; esac
if [ -e \"$0.fails-$2\" ]; then echo \"no $2 today\" >&2; exit 5; fi
";

struct Machine {
    world: World,
}

impl Machine {
    /// A world with a configuration in a directory of an odd name, and with systemd where `systemd` says so.
    fn new(systemd: bool) -> Self {
        let machine = Self { world: World::new() };
        write(&machine.config(), "[[mirror]]\nconversation = 'c'\nworkspace = '~'\n");
        if systemd {
            let program = machine.systemctl("");
            write(&program, SYSTEMCTL);
            fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        }
        machine
    }

    fn systemctl(&self, suffix: &str) -> PathBuf {
        self.world.path(&format!("bin/systemctl{suffix}"))
    }

    fn config(&self) -> PathBuf {
        self.world.path("50% of $work/p.toml")
    }

    fn unit(&self) -> PathBuf {
        self.world.path("home/.config/systemd/user/hermes-mirror.service")
    }

    /// Exit code, stdout, stderr; with this world's places under names that are always the same.
    fn service(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = self.world.command();
        command.env("RUST_LOG", "warn").env("PATH", self.world.path("bin")).arg("service").args(arguments);
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| self.named(&String::from_utf8(bytes).unwrap());
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    fn named(&self, text: &str) -> String {
        let root = self.world.path("").display().to_string();
        text.replace(env!("CARGO_BIN_EXE_hermes-mirror"), "[program]")
            .replace(root.trim_end_matches('/'), "[dir]")
    }

    fn install(&self, more: &[&str]) -> (i32, String, String) {
        let config = self.config();
        self.service(&[&["install", "--config", config.to_str().unwrap()], more].concat())
    }

    /// What systemd was told since the last time, but for the question whether it is there.
    fn told(&self) -> Vec<String> {
        let told = self.systemctl(".told");
        let text = fs::read_to_string(&told).unwrap_or_default();
        let _ = fs::remove_file(told);
        text.lines().filter(|line| !line.contains(" show ")).map(str::to_owned).collect()
    }
}

const START: [&str; 3] =
    ["--user daemon-reload", "--user enable hermes-mirror.service", "--user restart hermes-mirror.service"];

#[test]
fn it_is_written_and_started_and_again_and_at_last_taken_away() {
    let machine = Machine::new(true);
    let (code, stdout, stderr) = machine.install(&[]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    insta::assert_snapshot!("installed", stdout);
    insta::assert_snapshot!("unit", machine.named(&fs::read_to_string(machine.unit()).unwrap()));
    assert_eq!(machine.told(), START);
    assert_eq!(machine.install(&[]).0, 0);
    assert_eq!(machine.told(), START);

    let (code, stdout, _) = machine.service(&["status"]);
    assert_eq!((code, stdout.as_str()), (0, "active (running)\n"));
    assert_eq!(machine.told(), ["--user --no-pager status hermes-mirror.service"]);

    let (code, stdout, _) = machine.service(&["uninstall"]);
    let gone = "stopped, and [dir]/home/.config/systemd/user/hermes-mirror.service taken away\n";
    assert_eq!((code, stdout.as_str()), (0, gone));
    assert_eq!(machine.told(), ["--user disable --now hermes-mirror.service", "--user daemon-reload"]);
    assert!(!machine.unit().exists());
    assert!(machine.service(&["uninstall"]).1.starts_with("not installed"));
    assert_eq!(machine.service(&["status"]).0, 1);
}

#[test]
fn to_print_does_nothing_and_is_what_is_done_where_no_systemd_answers() {
    let machine = Machine::new(true);
    let (code, printed, stderr) = machine.install(&["--print"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(printed.contains("run\" \"--config\" \"[dir]/50%% of $$work/p.toml\"\n"), "{printed}");
    assert!(!machine.unit().exists() && machine.told().is_empty());

    let without = Machine::new(false);
    let (code, stdout, stderr) = without.install(&[]);
    assert_eq!((code, stdout), (0, printed.clone()));
    assert!(stderr.contains("no systemd answers this user"), "{stderr}");
    assert!(!without.unit().exists());

    write(&machine.systemctl(".fails-show"), "");
    let (code, stdout, stderr) = machine.install(&[]);
    assert_eq!((code, stdout), (0, printed));
    assert!(stderr.contains("no systemd answers this user"), "{stderr}");
}

#[test]
fn the_environment_that_decides_where_it_looks_goes_along() {
    let machine = Machine::new(true);
    let mut command = machine.world.command();
    command.env("HERMES_HOME", "/srv/50% of $h").args(["service", "install", "--print", "--config"]);
    let output = command.arg(machine.config()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\nEnvironment=\"HERMES_HOME=/srv/50%% of $h\"\n"), "{text}");
}

#[test]
fn what_systemd_refuses_is_told_in_its_words() {
    let machine = Machine::new(true);
    write(&machine.systemctl(".fails-enable"), "");
    let (code, _, stderr) = machine.install(&[]);
    assert_eq!(code, 1);
    let expected = "error: `systemctl --user enable hermes-mirror.service` failed: no enable today\n\
                    help: mend what systemd says, then try again\n";
    assert_eq!(stderr, expected);
}

#[test]
fn another_ones_unit_is_neither_replaced_nor_removed() {
    let machine = Machine::new(true);
    write(&machine.unit(), "[Service]\nExecStart=/mine\n");
    for arguments in [&["uninstall"][..], &["install", "--config", machine.config().to_str().unwrap()]] {
        let (code, _, stderr) = machine.service(arguments);
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains("was not written by hermes-mirror"), "{stderr}");
    }
    assert!(machine.told().is_empty());
    assert!(fs::read_to_string(machine.unit()).unwrap().contains("/mine"));
}

#[test]
fn a_configuration_that_would_not_run_is_not_installed() {
    let machine = Machine::new(true);
    write(&machine.config(), "");
    assert_eq!(machine.install(&[]).0, 2);
    write(&machine.config(), "nonsense = 1\n");
    assert_eq!(machine.install(&["--print"]).0, 2);
    assert!(!machine.unit().exists() && machine.told().is_empty());
}

#[test]
fn a_token_that_the_service_cannot_see_is_pointed_out() {
    let machine = Machine::new(true);
    let text = "[deliver.auth.env]\nname = 'TOKEN'\n[[mirror]]\nconversation = 'c'\nworkspace = '~'\n";
    write(&machine.config(), text);
    let (_, stdout, _) = machine.install(&[]);
    assert!(stdout.contains("note: the service does not see the variable TOKEN"), "{stdout}");
}
