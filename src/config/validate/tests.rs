#![allow(clippy::disallowed_methods, reason = "files of the tests' own")]

use proptest::prelude::*;

use super::super::{Choice, Glob, History, Mirror};
use super::*;

fn at_home(text: &str) -> Result<Config, ConfigError> {
    parse_at(text, "p.toml", Path::new("/etc/hm"), Some(Path::new("/home/ada")))
}

fn messages(text: &str) -> Vec<String> {
    at_home(text).unwrap_err().diagnostics().iter().map(|one| one.message.clone()).collect()
}

#[test]
fn an_empty_text_is_all_defaults() {
    assert_eq!(at_home("").unwrap(), Config::default());
}

#[test]
fn a_mirror_and_a_server_address_are_enough() {
    let config = at_home(
        "[deliver]\nbase_url = 'https://host/prefix'\n[[mirror]]\nconversation = 'c'\nworkspace = '/w'",
    )
    .unwrap();
    assert_eq!(config.deliver.base_url, "https://host/prefix");
    assert_eq!(config.mirror[0].workspace.as_deref(), Some(Path::new("/w")));
    assert_eq!(config.mirror[0].agent_name, None);
}

#[test]
fn a_mirror_of_many_needs_no_more_than_a_word() {
    let config = at_home("[[mirror]]\nmatch = 'all'").unwrap();
    let mirror = &config.mirror[0];
    assert!(mirror.makes_conversation());
    assert_eq!(mirror.matching, Some(Choice::default()));
    assert_eq!((&mirror.sources, mirror.history), (&super::super::default_sources(), None));
}

#[test]
fn patterns_of_directories_begin_where_paths_do() {
    let config = at_home(
        "[[mirror]]\nmatch = { workspace = ['~/work/*', 'near'], title = ['*x'] }\nhistory = 20\n\
         exclude = { workspace = ['/s'] }\n[[mirror]]\nconversation = 'c'\nsession = 's'\nhistory = 'open-turn'",
    )
    .unwrap();
    let texts = |globs: &[Glob]| globs.iter().map(|glob| glob.as_str().to_owned()).collect::<Vec<_>>();
    let Mirror { matching, exclude, history, .. } = &config.mirror[0];
    let matching = matching.as_ref().unwrap();
    assert_eq!(texts(&matching.workspace), ["/home/ada/work/*", "/etc/hm/near"]);
    assert_eq!(
        (texts(&matching.title), texts(&exclude.workspace)),
        (vec!["*x".to_owned()], vec!["/s".to_owned()])
    );
    assert_eq!(*history, Some(History::Rows(20)));
    assert_eq!(config.mirror[1].history, Some(History::OpenTurn));
}

#[test]
fn every_problem_is_found_at_once_and_in_the_order_of_the_text() {
    let found = messages(
        "[detect]\npoll_ms = 0\nmode = 'pol'\n[read]\nbusy_ms = '5'\nnope = 1\n[transform]\nreasoning = 1\n\
         [[mirror]]\nworkspace = '/w'\nlaunch_epoch = -1\n",
    );
    let expected = [
        "`poll_ms` in [detect] is out of range",
        "`mode` in [detect] can't be \"pol\"",
        "`busy_ms` in [read] must be a whole number",
        "unknown key `nope` in [read]",
        "`reasoning` in [transform] must be `true` or `false`",
        "[[mirror]] has no `conversation`",
        "`launch_epoch` in [[mirror]] is negative",
    ];
    assert_eq!(found, expected);
}

#[test]
fn every_table_refuses_an_unknown_key() {
    for table in [
        "",
        "[source]",
        "[detect]",
        "[read]",
        "[transform]",
        "[transform.egress]",
        "[turns]",
        "[deliver]",
        "[deliver.retry]",
        "[deliver.auth]",
        "[deliver.auth.env]\nname = 'T'",
        "[deliver.auth.file]\npath = 'p'",
        "[deliver.auth.command]\nargv = ['a']",
        "[state]",
        "[status]",
        "[hooks]",
        "[[mirror]]\nconversation = 'c'\nsession = 's'",
    ] {
        let found = messages(&format!("{table}\nzzz = 1"));
        assert_eq!(found.len(), 1, "{table}: {found:?}");
        assert!(found[0].contains("unknown key `zzz`"), "{table}: {found:?}");
    }
}

#[test]
fn a_key_in_the_wrong_table_is_told_where_it_belongs() {
    let error = at_home("jitter = 0.5").unwrap_err();
    assert_eq!(error.diagnostics()[0].help.as_deref(), Some("`jitter` belongs to [deliver.retry]"));
    let error = at_home("[retry]\njitter = 0.5").unwrap_err();
    assert_eq!(error.diagnostics()[0].help.as_deref(), Some("`retry` belongs to [deliver]"));
}

#[test]
fn both_ends_of_a_range_are_inside_it() {
    for (table, key, low, high) in [
        ("detect", "fallback_poll_ms", 100_u64, 60_000_u64),
        ("detect", "poll_ms", 1, 60_000),
        ("detect", "look_us", 50, 10_000),
        ("detect", "settle_ms", 5, 10_000),
        ("detect", "release_after_ms", 100, 3_600_000),
        ("read", "batch_rows", 1, 10_000),
        ("read", "batch_bytes", 4_096, 268_435_456),
        ("read", "busy_ms", 0, 1_000),
        ("transform", "max_output_chars", 256, 10_000_000),
        ("transform", "max_text_chars", 256, 10_000_000),
        ("transform", "max_image_bytes", 0, 104_857_600),
        ("turns", "reassert_ms", 50, 60_000),
        ("turns", "reassert_for_s", 1, 604_800),
        ("deliver", "timeout_ms", 100, 600_000),
        ("deliver", "connect_timeout_ms", 50, 60_000),
        ("deliver", "keep_alive_ms", 0, 600_000),
        ("deliver", "queue_rows", 1, 10_000),
        ("deliver", "drain_ms", 0, 600_000),
        ("hooks", "timeout_ms", 100, 600_000),
        ("deliver.retry", "max_ms", 100, 3_600_000),
        ("deliver.retry", "max_retry_after_ms", 0, 3_600_000),
    ] {
        for good in [low, high] {
            assert!(at_home(&format!("[{table}]\n{key} = {good}")).is_ok(), "{key} = {good}");
        }
        assert!(at_home(&format!("[{table}]\n{key} = {}", high + 1)).is_err(), "{key} above");
        if low > 1 {
            assert!(at_home(&format!("[{table}]\n{key} = {}", low - 1)).is_err(), "{key} below");
        }
        for odd in ["-1", "99999999999999999999999999999999999999999", "1.0", "\"1\"", "true", "[1]", "{}"] {
            assert!(at_home(&format!("[{table}]\n{key} = {odd}")).is_err(), "{key} = {odd}");
        }
    }
}

#[test]
fn zero_turns_the_reassertion_off() {
    assert_eq!(at_home("[turns]\nreassert_ms = 0").unwrap().turns.reassert_ms, 0);
}

#[test]
fn numbers_may_be_written_in_any_way_toml_has() {
    let config =
        at_home("[detect]\npoll_ms = 1_000\nsettle_ms = 0x64\n[deliver.retry]\nmultiplier = 3").unwrap();
    assert_eq!((config.detect.poll_ms, config.detect.settle_ms), (1_000, 100));
    assert!((config.deliver.retry.multiplier - 3.0).abs() < f64::EPSILON);
}

#[test]
fn a_longest_wait_below_the_first_is_refused_and_never_made_up() {
    assert!(at_home("[deliver.retry]\ninitial_ms = 500\nmax_ms = 499").is_err());
    assert_eq!(at_home("[deliver.retry]\ninitial_ms = 20000").unwrap().deliver.retry.max_ms, 20_000);
}

#[test]
fn paths_begin_at_the_file_or_at_home() {
    let config = at_home(
        "[source]\ndb = '~/.hermes/state.db'\n[state]\ndir = 'st'\n[deliver.auth.command]\nargv = ['./t.sh', './x']\n\
         [[mirror]]\nconversation = 'c'\nworkspace = '~'\nbridge_dir = '/b'",
    )
    .unwrap();
    assert_eq!(config.source.db.unwrap(), Path::new("/home/ada/.hermes/state.db"));
    assert_eq!(config.state.dir.unwrap(), Path::new("/etc/hm/st"));
    assert_eq!(config.deliver.auth.command.unwrap().argv, ["/etc/hm/./t.sh", "./x"]);
    assert_eq!(config.mirror[0].workspace.as_deref(), Some(Path::new("/home/ada/")));
    assert_eq!(config.mirror[0].bridge_dir.as_deref(), Some(Path::new("/b")));
}

#[test]
fn what_only_a_shell_expands_is_refused() {
    for path in ["~bob/x", "$HOME/x", ""] {
        assert!(at_home(&format!("[source]\ndb = '{path}'")).is_err(), "{path}");
    }
    assert!(parse_at("[source]\ndb = '~/x'", "p.toml", Path::new(""), None).is_err());
}

#[test]
fn a_token_has_one_source_and_two_more_are_two_problems() {
    let all = "[deliver.auth.env]\nname = 'T'\n[deliver.auth.file]\npath = 'p'\n[deliver.auth.command]\nargv = ['a']";
    assert_eq!(messages(all), ["the token can come from one place only"; 2]);
}

#[test]
fn no_token_is_ever_shown() {
    for text in [
        "[deliver]\nbase_url = 'http://user:s3cr3t@host'",
        "[deliver]\nbase_url = \"http://user:s3cr3t\\u0040host\"",
        "[deliver]\nbase_url = 'http://host/?t=s3cr3t'",
        "[deliver]\nbase_url = 'http://s3cr3t@host",
        "[deliver]\nbase_url = 'http:///user:s3cr3t@host'",
        "[deliver]\nbase_url = 'http:user:s3cr3t@host'",
        "[deliver]\nbase_url = 'http://host/#s3cr3t'",
        "[deliver.auth]\ntoken = 's3cr3t'",
        "[deliver.auth.env]\nname = 's3cr3t.x-y'",
        "[deliver]\nbearer_token = '''\ns3cr3t'''",
    ] {
        let error = at_home(text).unwrap_err();
        let shown = format!("{error} {error:?} {} {}", error.render(false), error.render(true));
        assert!(!shown.contains("s3cr3t"), "{text}\n{shown}");
    }
}

#[test]
fn the_rest_of_an_address_with_a_token_is_shown() {
    let error = at_home("[deliver]\nbase_url = 'http://user:s3cr3t@host/api'").unwrap_err();
    assert!(error.render(false).contains("'http://***********@host/api'"), "{}", error.render(false));
}

#[test]
fn mirrors_share_neither_conversation_nor_bridge_directory() {
    let two = "[[mirror]]\nconversation = 'c'\nsession = 's'\nbridge_dir = 'b'\n\
               [[mirror]]\nconversation = 'c'\nsession = 't'\nbridge_dir = './b'";
    assert_eq!(messages(two).len(), 2);
}

#[test]
fn errors_of_syntax_stand_beside_the_others_without_echoes() {
    let found = messages(
        "[detect]\npoll_ms = 4oo\nlook_us =\nsettle_ms = 1\nsettle_ms = 6\n[[mirror]]\nconversation = c\n",
    );
    assert_eq!(found.len(), 5, "{found:?}");
}

#[test]
fn a_byte_order_mark_and_carriage_returns_are_no_problem() {
    let error = at_home("\u{feff}[detect]\r\npoll_ms = 0\r\n").unwrap_err();
    assert!(error.render(false).contains("p.toml:2:11"), "{}", error.render(false));
}

#[test]
fn a_file_that_is_not_text_is_unreadable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.toml");
    fs::write(&path, b"a = \xff").unwrap();
    let error = load(&path).unwrap_err();
    assert!(error.render(false).contains("not UTF-8 from byte 4"));
    assert!(error.help().is_some());
}

#[test]
fn a_loaded_file_has_whole_paths() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.toml");
    fs::write(&path, "[state]\ndir = 'here'").unwrap();
    assert_eq!(load(&path).unwrap().state.dir.unwrap(), directory.path().join("here"));
}

proptest! {
    #[test]
    fn no_text_at_all_breaks_the_parser_or_the_messages(
        pieces in prop::collection::vec(prop_oneof![
            Just("[[mirror]]\n".to_owned()), Just("[deliver.auth.env]\n".to_owned()), Just("[detect]\n".to_owned()),
            Just("poll_ms = ".to_owned()), Just("base_url = \"http://é@".to_owned()), Just("token = '".to_owned()),
            Just("\r\n".to_owned()), Just("\"\"\"".to_owned()), Just("\u{0}\u{1b}\u{200d}".to_owned()),
            "\\PC{0,6}", "[ -~]{0,8}\n",
        ], 0..12),
    ) {
        if let Err(error) = at_home(&pieces.concat()) {
            prop_assert!(!error.diagnostics().is_empty());
            prop_assert!(error.render(false).starts_with("error: "));
        }
    }
}
