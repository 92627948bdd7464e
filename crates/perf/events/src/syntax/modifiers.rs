//! The letters after an event's colon.

use super::Fault;
use crate::{Attr, AttrFlags};

/// Applies `letters`, which start at byte `at`; whether `S` was among them.
pub(super) fn apply(letters: &str, at: usize, attr: &mut Attr) -> Result<bool, Fault> {
    let mut privilege = [
        (b'u', AttrFlags::EXCLUDE_USER),
        (b'k', AttrFlags::EXCLUDE_KERNEL),
        (b'h', AttrFlags::EXCLUDE_HV),
    ]
    .map(|(letter, flag)| (letter, flag, false));
    let mut machine = [
        (b'G', AttrFlags::EXCLUDE_GUEST),
        (b'H', AttrFlags::EXCLUDE_HOST),
    ]
    .map(|(letter, flag)| (letter, flag, false));
    let mut precise = 0_u8;
    let mut sample = false;
    for (index, letter) in letters.char_indices() {
        match letter {
            'u' | 'k' | 'h' => mark(&mut privilege, letter),
            'G' | 'H' => mark(&mut machine, letter),
            'p' if precise < 3 => precise += 1,
            'p' => {
                return Err(Fault::new(
                    at + index,
                    "more than three `p`",
                    "the most precise is :ppp, or :P",
                ));
            }
            'P' => precise = 3,
            'S' => sample = true,
            'D' => attr.flags |= AttrFlags::PINNED,
            'I' => attr.flags |= AttrFlags::EXCLUDE_IDLE,
            'e' => attr.flags |= AttrFlags::EXCLUSIVE,
            // A weak group may be taken apart; ours are refused instead, aloud.
            'W' => {}
            other => {
                return Err(Fault::new(
                    at + index,
                    format!("`{other}` is no modifier"),
                    "modifiers are u k h (where to count), p P (precise), S (group values), D e (PMU), G H I",
                ));
            }
        }
    }
    if letters.is_empty() {
        return Err(Fault::new(
            at,
            "no modifier after the colon",
            "leave the colon out, or write :u",
        ));
    }
    exclude_others(&privilege, attr);
    exclude_others(&machine, attr);
    if precise > 0 {
        attr.set_precise_ip(precise);
    }
    Ok(sample)
}

fn mark(choices: &mut [(u8, AttrFlags, bool)], letter: char) {
    for (known, _, chosen) in choices {
        *chosen |= char::from(*known) == letter;
    }
}

/// Naming some places leaves the others out; naming none leaves all.
fn exclude_others(choices: &[(u8, AttrFlags, bool)], attr: &mut Attr) {
    if choices.iter().any(|(_, _, chosen)| *chosen) {
        for (_, flag, chosen) in choices {
            attr.flags.set(*flag, !chosen);
        }
    }
}
