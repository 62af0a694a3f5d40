//! Which text in the user's role the person typed.
//!
//! Hermes speaks to its model in the user's role: it continues truncated answers, reports background work,
//! loads skills. The server takes each message of a person to answer the oldest input that waits on the web
//! page, so the two must be told apart.

use super::summary;

/// Where the text of a row in the user's role comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin<'a> {
    /// The person typed this; notes that Hermes put in front are left out.
    Typed(&'a str),
    /// The person typed this slash command; Hermes put the skill's instructions in its place.
    Skill(String),
    /// Hermes wrote it.
    Synthetic,
}

/// How a text begins that Hermes wrote from start to end.
const SYNTHETIC: &[&str] = &[
    "[ASYNC DELEGATION BATCH COMPLETE — ",
    "[ASYNC DELEGATION COMPLETE — ",
    "[Continuing toward your standing goal]",
    "[IMPORTANT: Background process ",
    "[IMPORTANT: MCP servers have been reloaded",
    "[IMPORTANT: You are running as a scheduled cron job.",
    "[System: Continue now.",
    "[System: The active model for this chat has changed to",
    "[System: The user has changed the assistant",
    "[System: The user has cleared the personality overlay",
    "[System: You are a Hermes kanban worker",
    "[System: You edited code in this turn",
    "[System: Your previous response contained only",
];

/// How a text begins by which Hermes has its model go on with an answer that was cut off: by a limit, or with the
/// connection.
const CONTINUATIONS: &[&str] = &[
    "[System: The previous response was cut off",
    "[System: Your previous response was truncated",
    "[System: Your previous tool call",
];

/// How a text begins that a compaction adds, whether or not a turn runs. No turn begins with it.
const ASIDES: &[&str] = &[
    "[Your active task list was preserved across context compression]",
    "Continue from the compressed conversation context above. This marker exists because no human user turn",
];

/// How a note begins that Hermes puts in front of what the person typed, and how it ends. Where nothing
/// stands behind it, the whole text is synthetic.
const NOTES: &[(&str, &str)] = &[
    ("[Note: model was just switched from", "]\n\n"),
    ("[System note: ", "]\n\n"),
    ("[USER INITIATED SKILLS RELOAD:", "updated catalog.]\n\n"),
];

/// Descriptions of images for a model that sees none; they stand in front of what the person typed.
const DESCRIPTIONS: &[&str] = &["[The user attached an image", "[The user sent an image"];
/// What the last line of a description names.
const DESCRIPTION_END: &str = "image_url: ";

/// `messages.display_kind` of rows that no person typed.
const KINDS: &[&str] = &[
    "hidden",
    "model_switch",
    "personality_switch",
    "async_delegation_complete",
    "auto_continue",
    "internal_notification",
];

const SKILL: &str = "[IMPORTANT: The user has invoked the \"";
const SKILL_INSTRUCTION: &str =
    "\n\nThe user has provided the following instruction alongside the skill invocation: ";
const BUNDLE_INSTRUCTION: &str = "\n\nUser instruction: ";
const BUNDLE_BODY: &str = "\n\n[Loaded as part of the ";
const RUNTIME_NOTE: &str = "\n\n[Runtime note: ";

/// Says where a row's text comes from.
///
/// `text` is the decoded text, `display_kind` and `observed` are the row's columns. An observed row is
/// another person's message, not this conversation's input.
#[must_use]
pub fn origin<'a>(text: &'a str, display_kind: Option<&str>, observed: bool) -> Origin<'a> {
    if observed || display_kind.is_some_and(|kind| KINDS.contains(&kind)) || summary::is_summary(text) {
        return Origin::Synthetic;
    }
    let mut typed = text;
    loop {
        if let Some(invocation) = typed.strip_prefix(SKILL) {
            return skill(invocation);
        }
        if is_aside(typed)
            || is_continuation(typed)
            || SYNTHETIC.iter().any(|prefix| typed.starts_with(prefix))
        {
            return Origin::Synthetic;
        }
        match behind_note(typed) {
            None => return Origin::Typed(typed),
            Some("") => return Origin::Synthetic,
            Some(rest) => typed = rest,
        }
    }
}

/// Whether Hermes has its model go on by the text.
#[must_use]
pub fn is_continuation(text: &str) -> bool {
    CONTINUATIONS.iter().any(|start| text.starts_with(start))
}

/// Whether a compaction added the text.
#[must_use]
pub fn is_aside(text: &str) -> bool {
    ASIDES.iter().any(|start| text.starts_with(start))
}

/// What stands behind the note that `text` begins with; `None` where it begins with none.
fn behind_note(text: &str) -> Option<&str> {
    if DESCRIPTIONS.iter().any(|start| text.starts_with(start)) {
        // A description may hold anything; only the line with the image's address ends it.
        let behind = text.rsplit_once(DESCRIPTION_END).and_then(|(_, tail)| tail.split_once("]\n\n"));
        return Some(behind.map_or("", |(_, rest)| rest.trim()));
    }
    let (_, end) = NOTES.iter().find(|(start, _)| text.starts_with(start))?;
    Some(text.split_once(end).map_or("", |(_, rest)| rest.trim()))
}

/// The command behind an invocation: its name, and the instruction that the person gave with it.
fn skill(invocation: &str) -> Origin<'_> {
    let Some((name, body)) = invocation.split_once('"').filter(|(name, _)| !name.is_empty()) else {
        return Origin::Synthetic;
    };
    // One line says what was invoked; a bundle gives the instruction in front of its skills, a skill behind.
    let is_bundle = body.split_once(']').is_some_and(|(line, _)| line.contains(" skill bundle,"));
    let instruction = if is_bundle {
        let header = body.split_once(BUNDLE_BODY).map_or(body, |(header, _)| header);
        header.split_once(BUNDLE_INSTRUCTION)
    } else {
        let body =
            body.rsplit_once(RUNTIME_NOTE).filter(|(_, note)| note.ends_with(']')).map_or(body, |(b, _)| b);
        body.rsplit_once(SKILL_INSTRUCTION)
    };
    let slash = if name.starts_with('/') { "" } else { "/" };
    Origin::Skill(match instruction.map(|(_, instruction)| instruction.trim()) {
        None | Some("") => format!("{slash}{name}"),
        Some(instruction) => format!("{slash}{name} {instruction}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Origin<'_> {
        origin(text, None, false)
    }

    const INVOKED: &str = "[IMPORTANT: The user has invoked the \"myskill\" skill, indicating they want you to follow \
        its instructions. The full skill content is loaded below.]\n\n---\nname: myskill\n---\n# My skill\nDo the thing.";

    #[test]
    fn what_a_person_types_is_theirs_even_in_brackets() {
        for text in
            ["hello", "", "[System: is this bracket yours?]", "why [IMPORTANT: Background process x] ?"]
        {
            assert_eq!(of(text), Origin::Typed(text));
        }
    }

    #[test]
    fn e4_what_hermes_says_in_the_users_role_is_synthetic() {
        for text in [
            "[IMPORTANT: Background process proc_95d2 completed normally (exit code 0).\nCommand: sleep 3\n]",
            "[ASYNC DELEGATION BATCH COMPLETE — deleg_ca8a82e0]\nA background fan-out has finished.",
            "[System: Your previous response was truncated by the output length limit.]",
            "[System: The previous response was cut off by a network error mid-stream.]",
            "[Continuing toward your standing goal]\nGoal: finish the demo",
            "[Your active task list was preserved across context compression]\n- [ ] one",
            "[The user attached an image. Here's what it contains:\nA red square.]\n[If you need a closer look, \
             use vision_analyze with image_url: /w/red.png]",
            "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted",
        ] {
            assert_eq!(of(text), Origin::Synthetic, "{text}");
        }
    }

    #[test]
    fn e4_rows_that_hermes_marks_are_synthetic_whatever_they_say() {
        assert_eq!(origin("hello", Some("auto_continue"), false), Origin::Synthetic);
        assert_eq!(origin("hello", Some("a kind to come"), false), Origin::Typed("hello"));
        assert_eq!(origin("hello", None, true), Origin::Synthetic);
    }

    #[test]
    fn a_note_in_front_of_a_persons_text_does_not_take_the_text_with_it() {
        let note =
            "[Note: model was just switched from a to b via c. Adjust your self-identification accordingly.]";
        assert_eq!(of(&format!("{note}\n\nhello [1]\n\nworld")), Origin::Typed("hello [1]\n\nworld"));
        assert_eq!(of(note), Origin::Synthetic);
        let image = "[The user attached an image. Here's what it contains:\n[a]\n\nred]\n[If you need a closer look, \
            use vision_analyze with image_url: /w/red.png]";
        assert_eq!(of(&format!("{image}\n\n{image}\n\nwhat is it?")), Origin::Typed("what is it?"));
    }

    #[test]
    fn a_skill_shows_as_the_command_that_was_typed() {
        assert_eq!(of(INVOKED), Origin::Skill("/myskill".to_owned()));
        let told = format!(
            "{INVOKED}\n\nThe user has provided the following instruction alongside the skill invocation: please do it"
        );
        assert_eq!(of(&told), Origin::Skill("/myskill please do it".to_owned()));
        assert_eq!(
            of(&format!("{told}\n\n[Runtime note: elsewhere]")),
            Origin::Skill("/myskill please do it".to_owned())
        );
    }

    #[test]
    fn a_bundle_shows_as_the_command_that_was_typed() {
        let bundle = "[IMPORTANT: The user has invoked the \"/a /b\" stacked skill bundle, loading 2 skills together. \
            Treat every skill below as active guidance for this turn.]\n\nSkills loaded: a, b\n\n\
            User instruction: go on\n\n[Loaded as part of the stack]\n\nUser instruction: not this";
        assert_eq!(of(bundle), Origin::Skill("/a /b go on".to_owned()));
    }
}
