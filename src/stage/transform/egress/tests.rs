use proptest::prelude::*;

use super::*;
use crate::config::Pattern;

fn filter(patterns: &[&str]) -> Egress {
    let patterns = patterns.iter().map(|text| Pattern::new(text).unwrap()).collect();
    Egress::new(&config::Egress { enabled: true, patterns })
}

fn mask(text: &str) -> String {
    filter(&[]).mask(text).into_owned()
}

/// Secrets, each with what is shown of it. They are made up, and put together here so that no scanner of this
/// repository takes them for real ones.
pub(in super::super) fn samples() -> Vec<(String, String)> {
    let hex = "9f86d081884c7d659a2feaa0c55ad015";
    let alnum = "Zx8Qw3Er5Ty7Ui9Op1As2Df4Gh6Jk8Lz0Xc3Vb5N";
    let upper = "Q3ZT7XK2M5PL4R6W";
    let own = |head: &str, secret: &str| (format!("{head}{secret}"), format!("{head}{MASK}"));
    let mut samples = Vec::new();
    for head in [
        "sk-",
        "sk-proj-",
        "sk-svcacct-",
        "sk-ant-",
        "sk-or-",
        "gsk_",
        "xai-",
        "pplx-",
        "hf_",
        "r8_",
        "tvly-",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
        "glpat-",
        "glrt-",
        "ya29.",
        "GOCSPX-",
        "xoxa-",
        "xoxb-",
        "xoxp-",
        "xoxr-",
        "xoxs-",
        "sk_live_",
        "rk_live_",
        "whsec_",
        "npm_",
        "shpat_",
        "lin_api_",
        "https://hooks.slack.com/services/",
        "https://discord.com/api/webhooks/",
        "SG.",
        "dop_v1_",
        "hvs.",
    ] {
        samples.push(own(head, alnum));
    }
    samples.extend([
        own("sk-or-", &format!("v1-{hex}{hex}")),
        own("sk-", hex),
        own("pypi-", &format!("AgEI{alnum}{alnum}")),
        own("AKIA", upper),
        own("ASIA", upper),
        own("AIza", "SyD4x-9Kq_7Lw2Mn5Bv8Cx1Zs3Df6Gh0JkL"),
        own("dapi", hex),
        own("110201543:", &format!("AA{}", &alnum[..33])),
        own("eyJ", "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.4f-Xz_q8w7e6r5t4y3u2i1"),
        own(
            "eyJ",
            "hbGciOiJSU0EtT0FFUCJ9.OKOawDo13gRp2ojaHV7LFpZcgV7T6DVZKTyKOM.48V1_ALb6US04U3b.5eym8.XFBo",
        ),
        own("Authorization: Bearer ", "abcdefgh1"),
        own("authorization: basic ", "dXNlcjpwYXNz"),
        own("Bearer ", alnum),
        own("AWS_SECRET_ACCESS_KEY=", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzzKEY"),
        own("aws_secret_access_key = ", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzzKEY"),
        own("export DB_PASSWORD=", "postgres"),
        own("MYSQL_PASS=", "letmein"),
        own("password: ", "hunter22"),
        own("passwd=", "s3cret!x"),
        own("token=", "a1b2c3d4e5f6"),
        own("https://host/?access_token=", "a1b2c3d4e5f6"),
        own("X-Api-Key: ", hex),
        own("api_key: ", hex),
        own("- **API key**: x\n- **Token:** ", hex),
        own("deploy --token ", "a1b2c3d4e5f6"),
        own("login --db-password ", "hunter22"),
        own("https://", alnum),
    ]);
    if let Some((address, shown)) = samples.last_mut() {
        address.push_str("@host/x");
        shown.push_str("@host/x");
    }
    samples.extend(enclosed());
    samples
}

/// Samples with something behind the secret that stays.
fn enclosed() -> Vec<(String, String)> {
    let block = format!(
        "\n{}\n{}\nAbc=\n",
        "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC".repeat(2),
        "q83vEjRWeJCrze8B".repeat(4)
    );
    let end = "-----END RSA PRIVATE KEY-----";
    let mut samples = Vec::new();
    for (before, secret, after) in [
        ("postgres://ada:", "p", "@db:5432/x"),
        ("redis://:", "p@ss#1", "@db"),
        ("{\"password\": \"", "correct!horse", "\"}"),
        ("password = '", "hunter2", "'"),
        ("\"client_secret\":\"", "mysecret123", "\""),
        ("config[\"api_key\"] = \"", "mysecret123", "\""),
        ("{\\\"token\\\": \\\"", "my\\\\\\\"secret123", "\\\"}"),
        ("token: `", "mysecret123", "`"),
        ("secret=\"", "ab\\\"cd123", "\""),
        ("key: -----BEGIN RSA PRIVATE KEY-----", block.as_str(), end),
        ("\"-----BEGIN RSA PRIVATE KEY-----", block.replace('\n', "\\n").as_str(), &format!("{end}\\n\"")),
        ("-----BEGIN RSA PRIVATE KEY-----", block.trim_end_matches("\nAbc=\n"), "\n... (cut)"),
    ] {
        samples.push((format!("{before}{secret}{after}"), format!("{before}{MASK}{after}")));
    }
    samples
}

#[test]
fn every_known_shape_is_masked_and_what_kind_it_is_stays() {
    for (secret, shown) in samples() {
        assert_eq!(mask(&secret), shown, "{secret}");
    }
}

#[test]
fn a_secret_is_found_wherever_it_stands() {
    let wraps = [
        ("", ""),
        ("It is ", ". Keep it."),
        ("\"", "\""),
        ("語", "語"),
        ("{\"text\":\"a\\n", "\\nb\"}"),
        ("\u{1b}[31m", "\u{1b}[0m"),
        ("a=1\n", "\nb=2"),
        ("(", ")"),
        ("x%3D", "%26"),
    ];
    for (secret, shown) in
        [("ghp_", 36), ("sk-ant-", 40), ("AKIA", 16), ("xoxb-", 24)].map(|(head, length)| {
            (format!("{head}{}", &"Q3ZT7XK2M5PL4R6W".repeat(3)[..length]), format!("{head}{MASK}"))
        })
    {
        for (before, after) in wraps {
            assert_eq!(mask(&format!("{before}{secret}{after}")), format!("{before}{shown}{after}"));
        }
    }
}

#[test]
fn what_only_looks_like_a_secret_stays() {
    for text in [
        "token: the next one",
        "The secret: never give up. Password: required, at most once.",
        "Bearer of bad news; basic authentication2 is off; Authorization: Bearer authentication",
        "token = get_token()",
        "token = get_token2_from(config)",
        "let token: Option<String> = self.token.clone();",
        "token: Uint8Array, secret: [u8; 32], password: str = None",
        "password = getpass.getpass()",
        "connect(user=user, password=args.password, token=config.db1.token)",
        "password: ${DB_PASSWORD}, api_key: <your-api-key-1>, token: {{ token1 }}, PASSWORD=$1234",
        "\"password\": \"********\", \"token\": \"xxxxxxxxxxxx\", \"api_key\": \"your_api_key_here\"",
        "\"max_tokens\": 4096, \"token_count\": 12345678, \"total_tokens\":123456, token: 12345678",
        "Token::Ident2Value3x4y => token::parse1a2b3c()",
        "PWD=/home/ada/project2 OLDPWD=/tmp/a1b2c3 TOKEN_FILE=/run/secrets/t0k3n token: /run/secrets/a1b2c3d4",
        "commit 8c05fd9a1b2c3d4e5f60718293a4b5c6d7e8f901, tree 3f2a9c",
        "id 550e8400-e29b-41d4-a716-446655440000, call_4_0, toolu_01A09q90qw90lq917835lq9",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
        "integrity sha512-Zx8Qw3Er5Ty7Ui9Op1As2Df4Gh6Jk8Lz0Xc3Vb5NZx8Qw3Er5Ty7Ui9Op1As2Df4Gh6Jk8Lz==",
        "task-scheduler-configuration-2024-01-01 risk-assessment-of-the-year-2024 disk-utilisation-2024-01",
        "sk-learn-contrib-estimators-and-more sk-spinner-double-bounce-child-1",
        "npm_config_registry npm_lifecycle_event hf_hub_download_with_retries_and_timeouts ghp_short",
        "https://host:8080/a?b=c@d http://[::1]:1/ git@github.com:a/b.git https://user@host/x postgres://$U:$P@db",
        "12:34:56 12345678:ABCDEFGH eyJ eyJhbGciOiJIUzI1NiJ9 eyJhbGciOiJIUzI1NiJ9.x AKIA AKIAIOSFODNN7",
        "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A\n-----END PUBLIC KEY-----",
        "the header is -----BEGIN RSA PRIVATE KEY----- and then come lines",
        "if password == expected: raise ValueError('password too short')",
        "key: value\nsecret: my-app-tls\npassword: required\nsecretName: foo-1a2b3c4d",
    ] {
        assert_eq!(mask(text), text);
    }
}

#[test]
fn a_cut_does_not_leave_half_a_secret() {
    let secret = "ghp_Zx8Qw3Er5Ty7Ui9Op1As2Df4Gh6Jk8Lz0Xc3";
    let text = format!("token {secret} and more");
    for end in 7..="token ".len() + secret.len() {
        let shown = filter(&[]).mask_head(&text, end).into_owned();
        let expected = if end > 10 { format!("token ghp_{MASK}") } else { text[..end].to_owned() };
        assert_eq!(shown, expected, "{end}");
    }
}

#[test]
fn a_configured_pattern_masks_its_group_or_all_of_it() {
    let egress = filter(&[r"(?i)\bemp-\d{6}\b", "badge: (\\w+)"]);
    assert_eq!(egress.mask("Emp-123456, badge: ü7, emp-12"), format!("{MASK}, badge: {MASK}, emp-12"));
    assert_eq!(egress.masked(), 2);
    assert_eq!(egress.clone().masked(), 2);
}

#[test]
fn what_overlaps_is_masked_and_counted_once() {
    let egress = filter(&["Er5.*7Ui9", "b.{40}"]);
    let text = "ghp_Zx8Qw3Er5Ty7Ui9Op1As2Df4Gh6Jk8Lz0Xc3Vb5N";
    assert_eq!(egress.mask(text), format!("ghp_{MASK}"));
    assert_eq!(egress.masked(), 1);
}

#[test]
fn switched_off_nothing_is_touched() {
    let patterns = vec![Pattern::new("ghp").unwrap()];
    let egress = Egress::new(&config::Egress { enabled: false, patterns });
    for (secret, _) in samples() {
        assert!(matches!(egress.mask(&secret), Cow::Borrowed(same) if same == secret));
    }
    assert_eq!(egress.masked(), 0);
}

#[test]
fn arguments_stay_json_whatever_a_pattern_takes() {
    for (pattern, json) in
        [(r"\d{16}", r#"{"card":1234567812345678}"#), (r#""a":"#, r#"{"a":1}"#), (r#""b"#, r#"{"a":"b\nc"}"#)]
    {
        let egress = filter(&[pattern]);
        let shown = egress.mask_json(json, json.len());
        let value: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert!(value.as_str().is_some_and(|text| text.contains(MASK)), "{shown}");
    }
    let egress = filter(&["hidden"]);
    let json = r#"{"b":"hidden","a":1.50}"#;
    assert_eq!(egress.mask_json(json, json.len()), r#"{"b":"[masked]","a":1.50}"#);
}

/// Text made of what the filter looks at.
fn suspicious() -> impl Strategy<Value = String> {
    let special = prop::sample::select(vec![
        "sk-",
        "ghp_",
        "AKIA",
        "eyJ",
        ".eyJ",
        "xoxb-",
        "://",
        "@",
        ":",
        "=",
        " ",
        "\"",
        "'",
        "`",
        "\\",
        "\\\"",
        "\\n",
        "\n",
        "password",
        "PASSWORD",
        "token",
        "api_key",
        "--token ",
        "Bearer ",
        "Authorization: ",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "Zx8Qw3Er5Ty7Ui9Op1As2Df4Gh6Jk8Lz0Xc3Vb5N",
        "1234567890",
        "{",
        "}",
        "[",
        ",",
        "語",
        "é",
        MASK,
        "\u{1b}[31m",
        "\\/",
        "/",
    ]);
    prop::collection::vec(prop_oneof![4 => special.prop_map(str::to_owned), 1 => "\\PC{0,3}"], 0..24)
        .prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_text_makes_it_fail_or_grow_without_bound(text in suspicious(), end in 0_usize..200) {
        let shown = mask(&text);
        prop_assert!(shown.len() <= 3 * text.len() + MASK.len());
        prop_assert_eq!(mask(&text), shown);
        let head = filter(&["é+"]).mask_head(&text, end).into_owned();
        prop_assert!(head.len() <= 8 * end + MASK.len());
    }

    #[test]
    fn json_stays_json(texts in prop::collection::vec(suspicious(), 1..4), depth in 0_usize..3) {
        let mut json = serde_json::json!({"password": texts, "token": 1.5e10, "a": {"secret": null}}).to_string();
        for _ in 0..depth {
            json = serde_json::json!({"api_key": json, "x": [12_345_678]}).to_string();
        }
        let shown = filter(&["1+", "é."]).mask_json(&json, json.len()).into_owned();
        prop_assert!(serde_json::from_str::<IgnoredAny>(&shown).is_ok(), "{}", shown);
        // The known shapes alone never take a part of what makes it JSON.
        let shown = mask(&json);
        prop_assert!(serde_json::from_str::<IgnoredAny>(&shown).is_ok(), "{}", shown);
    }

    #[test]
    fn a_key_is_masked_between_any_texts_that_end_a_word(before in suspicious(), after in suspicious()) {
        let key = "glpat-Qq8Qw3Er5Ty7Ui9Op1As2Df4";
        let text = format!("{before}\n{key}\n{after}");
        prop_assert!(!mask(&text).contains(key), "{}", mask(&text));
    }
}
