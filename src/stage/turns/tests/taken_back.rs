//! Turns of which rows were taken back.

use super::*;
use crate::event::Undo;

#[test]
fn a_turn_whose_answer_was_taken_back_unseen_is_closed_and_none_is_opened_for_it() {
    let steps = vec![
        row(1, TurnEffect::Opens, &["q"]),
        row(2, TurnEffect::Settles, &[]),
        row(3, TurnEffect::None, &[]),
        row(4, TurnEffect::Settles, &[]),
    ];
    let expected = ["q@1>1 in1", "R1", ">2 owes1", "I1>2", ">3", ">4"];
    assert_eq!(all(&mut Turns::new(), steps), expected);
}

#[test]
fn a_note_on_an_undo_names_its_first_row_and_its_last_and_moves_no_cursor() {
    let note = |messages| {
        let undo = Undo { first: MessageId::new(3), last: MessageId::new(6), messages };
        let mut turns = Turns::new();
        turns.apply(Step::Beside(Beside::Undone(undo))).pop().expect("a note")
    };
    for (messages, text) in [
        (1, "[1 message was taken back in the terminal]"),
        (4, "[4 messages were taken back in the terminal]"),
    ] {
        let item = Item::User { text: text.to_owned(), images: Vec::new(), meta: true };
        let turn = ResponseId::for_turn(MessageId::new(6));
        let post = Post::Item { item, turn, row: MessageId::new(3), place: 0 };
        assert_eq!(note(messages), Delivery { post: Some(post), mark: None });
    }
}
