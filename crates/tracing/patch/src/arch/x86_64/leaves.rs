//! Functions that call nothing. An execution of such a function that is left out has nothing to hide below it.

use super::X86_64;
use super::stubs::called;
use crate::analysis::candidates::Candidate;
use crate::analysis::image::Image;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use std::collections::HashSet;

/// The size in bytes of the largest function that is looked at. Larger ones are hardly called so often that it matters.
const LARGEST: u64 = 1 << 16;

/// Functions that compilers let other functions call at their beginning.
const HOOKS: [&str; 3] = ["__fentry__", "mcount", "_mcount"];

/// Returns the first addresses of the functions that surely call nothing, and do not go on in other functions.
pub fn leaves<'c>(
    data: &[u8],
    candidates: impl Iterator<Item = &'c Candidate<X86_64>>,
) -> HashSet<u64> {
    let mut candidates = candidates.peekable();
    if candidates.peek().is_none() {
        return HashSet::new();
    }
    let Ok(image) = Image::linked::<X86_64>(data, 1) else {
        return HashSet::new();
    };
    candidates
        .filter(|function| function.size > 0 && function.size <= LARGEST)
        .filter(|function| {
            let code = image.bytes(function.start, function.size);
            code.is_some_and(|code| {
                calls_nothing(code, function.start, |call| {
                    called(&image, call).is_some_and(|name| HOOKS.contains(&name))
                })
            })
        })
        .map(|function| function.start)
        .collect()
}

/// Returns whether code at an address calls nothing but hooks, and does not run into the code behind it.
fn calls_nothing(code: &[u8], address: u64, is_hook: impl Fn(&Instruction) -> bool) -> bool {
    let inside = address..address + code.len() as u64;
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut goes_on = true;
    let is_inside = decoder.iter().all(|instruction| {
        if instruction.is_invalid() {
            return false;
        }
        // Padding behind a return is not reached either.
        if instruction.mnemonic() != Mnemonic::Nop {
            goes_on = !matches!(
                instruction.flow_control(),
                FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::Exception
            );
        }
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::Return | FlowControl::Exception => true,
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                inside.contains(&instruction.near_branch_target())
            }
            FlowControl::Call | FlowControl::IndirectCall => is_hook(&instruction),
            // The branch may lead to another function's beginning.
            FlowControl::IndirectBranch
            | FlowControl::Interrupt
            | FlowControl::XbeginXabortXend => false,
        }
    });
    is_inside && !goes_on
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_call_is_no_leaf() {
        let calls_nothing = |code: &[u8]| calls_nothing(code, 0x1000, |_| false);
        // lea eax, [rdi + rdi]; test eax, eax; jne back; ret; and a nop behind.
        assert!(calls_nothing(&[
            0x8d, 0x04, 0x3f, 0x85, 0xc0, 0x75, 0xf9, 0xc3, 0x0f, 0x1f, 0x44, 0, 0,
        ]));
        // A call, a call through a pointer, jumps elsewhere, and a system call.
        assert!(!calls_nothing(&[0xe8, 0, 0, 0, 0, 0xc3]));
        assert!(!calls_nothing(&[0xff, 0x15, 0, 0, 0, 0, 0xc3]));
        assert!(!calls_nothing(&[0xe9, 0x80, 0, 0, 0]));
        assert!(!calls_nothing(&[0x0f, 0x85, 0x80, 0, 0, 0, 0xc3]));
        assert!(!calls_nothing(&[0xff, 0xe0]));
        assert!(!calls_nothing(&[0x0f, 0x05, 0xc3]));
        // Code that runs into the code behind it, perhaps another function: always, or if no branch is taken.
        assert!(!calls_nothing(&[0x8d, 0x04, 0x3f]));
        assert!(!calls_nothing(&[0x8d, 0x04, 0x3f, 0x0f, 0x1f, 0x44, 0, 0]));
        assert!(!calls_nothing(&[0xc3, 0x85, 0xc0, 0x75, 0xfb]));
        // ud2.
        assert!(calls_nothing(&[0x0f, 0x0b]));
        // Cut off.
        assert!(!calls_nothing(&[0xc3, 0xe8, 0]));
        // A hook is no call.
        assert!(super::calls_nothing(
            &[0xe8, 0, 0, 0, 0, 0xc3],
            0x1000,
            |_| true
        ));
    }
}
