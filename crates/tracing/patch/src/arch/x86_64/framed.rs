//! Functions whose entries can be patched, as is known without a look at all code.
//!
//! A compiler puts its call of `mcount` where each execution of a function passes once. So only an entry of the
//! function leads to the instructions before it, or `mcount` would be called again. The question that is left is
//! whether the function looks at its return address. It has a quick answer where the frame pointer leads to the return
//! address.

use super::flow::looks;
use super::stubs::landing;
use crate::analysis::described::{Described, Framed, Slot, Stretch};
use crate::analysis::image::Image;
use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};

/// `push %rbp; mov %rsp, %rbp`, both ways to write it.
const FRAMES: [&[u8]; 2] = [&[0x55, 0x48, 0x89, 0xe5], &[0x55, 0x48, 0x8b, 0xec]];

/// Returns the frame of a function, if the function is framed.
pub fn framed(image: &Image<'_>, function: &Described, stretches: &[Stretch]) -> Option<Framed> {
    let bytes = image.bytes(function.start, function.size)?;
    let skip = landing(bytes);
    let code = bytes.get(skip..).unwrap_or_default();
    let frame = FRAMES.iter().find(|frame| code.starts_with(frame))?;
    let starts = [function.start, function.start + skip as u64];
    let mut loops = false;
    let mut at = 0;
    for stretch in stretches {
        let end = stretch.end.wrapping_sub(function.start) as usize;
        let is_known = match stretch.slot {
            Slot::AboveFramePointer(8) => true,
            Slot::AboveStackPointer(_) if end <= skip + frame.len() => true,
            // Behind the frame, the function returns or jumps on.
            slot @ Slot::AboveStackPointer(0) => {
                let code = bytes.get(at..end).unwrap_or_default();
                let from = function.start + at as u64;
                let mut code = Decoder::with_ip(64, code, from, DecoderOptions::NONE);
                !code.iter().any(|instruction| {
                    loops |= instruction.op0_kind() == OpKind::NearBranch64
                        && starts.contains(&instruction.near_branch_target());
                    looks(&instruction, slot)
                })
            }
            _ => false,
        };
        if !is_known {
            return None;
        }
        at = end;
    }
    (at == bytes.len()).then_some(Framed { loops })
}

/// The place of a framed function's return address.
const RETURN_ADDRESS: Slot = Slot::AboveFramePointer(8);

/// Returns whether a framed function looks at its return address, or changes it.
pub fn looks_at_return_address(bytes: &[u8]) -> bool {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    // Most functions need not be decoded.
    if !distances(bytes).any(|at| may_look(&mut decoder, at)) {
        return false;
    }
    let mut instructions = Decoder::new(64, bytes, DecoderOptions::NONE);
    instructions
        .iter()
        .any(|instruction| looks(&instruction, RETURN_ADDRESS))
}

/// Finds bytes that may be the distance in an instruction that uses a framed function's return address.
///
/// The return address lies 8 bytes above the frame pointer. Other bytes may look the same.
fn distances(bytes: &[u8]) -> impl Iterator<Item = usize> {
    // The operand's address is the frame pointer's value plus a number of one byte or four. There is also a longer
    // encoding, with a byte for an index and no index in it.
    let before = |at: usize, distance| at.checked_sub(distance).and_then(|at| bytes.get(at));
    memchr::memchr_iter(8, bytes).filter(move |&at| {
        let Some(operand) = before(at, 1) else {
            return false;
        };
        match operand & 0xc7 {
            0x45 => return true,
            0x85 => return bytes[at..].starts_with(&[8, 0, 0, 0]),
            _ => {}
        }
        let has_no_index = operand & 0x3f == 0x25;
        has_no_index
            && before(at, 2).is_some_and(|operand| match operand & 0xc7 {
                0x44 => true,
                0x84 => bytes[at..].starts_with(&[8, 0, 0, 0]),
                _ => false,
            })
    })
}

/// Returns whether the instruction that contains the byte `at` may look at the return address.
///
/// Only decoding from the start tells surely where that instruction begins. But an instruction has no more than 15
/// bytes. So among 15 bytes that lie a little before it, one is an instruction's first byte. Decoding from any other of
/// them soon goes on at the same instructions. So all 15 are tried: if none leads to an instruction that looks, there
/// is none.
fn may_look(decoder: &mut Decoder<'_>, at: usize) -> bool {
    const LONGEST: usize = 15;
    const BEFORE: usize = 48;
    let first = at.saturating_sub(BEFORE);
    let starts = if first == 0 { 1 } else { LONGEST };
    let mut seen = 0_u64;
    let mut instruction = Instruction::default();
    for start in first..first + starts {
        let mut place = start;
        // A place that was decoded before leads where it led then.
        while place <= at && seen & (1 << (place - first)) == 0 {
            seen |= 1 << (place - first);
            if decoder.set_position(place).is_err() || !decoder.can_decode() {
                return true;
            }
            decoder.decode_out(&mut instruction);
            // Bytes that are no instruction are passed over, too.
            place = decoder.position().max(place + 1);
            if place > at && looks(&instruction, RETURN_ADDRESS) {
                return true;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::Register;
    use iced_x86::code_asm::{CodeAssembler, qword_ptr, rax, rbp, rcx, rsp};

    fn has_distance(bytes: &[u8]) -> bool {
        distances(bytes).next().is_some()
    }

    fn may_look_at_return_address(bytes: &[u8]) -> bool {
        let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
        distances(bytes).any(|at| may_look(&mut decoder, at))
    }

    fn may_look_so(assemble: impl FnOnce(&mut CodeAssembler)) -> bool {
        let mut assembler = CodeAssembler::new(64).unwrap();
        assemble(&mut assembler);
        has_distance(&assembler.assemble(0x1000).unwrap())
    }

    #[test]
    fn looks_above_the_frame_pointer_are_seen() {
        assert!(may_look_so(|a| a.mov(rax, qword_ptr(rbp + 8)).unwrap()));
        assert!(may_look_so(|a| a.lea(rcx, qword_ptr(rbp + 8)).unwrap()));
        assert!(may_look_so(|a| a.add(qword_ptr(rbp + 8), 1).unwrap()));
        assert!(!may_look_so(|a| a.mov(rax, qword_ptr(rbp + 16)).unwrap()));
        assert!(!may_look_so(|a| a.mov(rax, qword_ptr(rbp - 8)).unwrap()));
        assert!(!may_look_so(|a| a.mov(rax, qword_ptr(rsp + 8)).unwrap()));
        // The ways that assemblers do not choose.
        for bytes in [
            &[0x48, 0x8b, 0x85, 8, 0, 0, 0][..],
            &[0x48, 0x8b, 0x44, 0x25, 8],
            &[0x48, 0x8b, 0x84, 0x65, 8, 0, 0, 0],
        ] {
            assert!(may_look_at_return_address(bytes), "{bytes:x?}");
            let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
            assert_eq!(instruction.memory_base(), Register::RBP);
            assert_eq!(instruction.memory_displacement64(), 8);
        }
    }

    #[test]
    fn what_is_found_quickly_is_what_decoding_finds() {
        // Code, and bytes that are none, with many that look like the distance.
        let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let half = bytes.len() / 2;
        bytes.truncate(half + (1 << 20));
        let mut code = bytes.split_off(half);
        for (at, byte) in code.iter_mut().enumerate().filter(|(at, _)| at % 7 == 0) {
            if at % 3 == 0 {
                *byte = 8;
            }
        }
        let (mut looking, mut quick) = (0, 0);
        for function in code.chunks(200) {
            let mut decoder = Decoder::new(64, function, DecoderOptions::NONE);
            let truth = decoder.iter().any(|i| looks(&i, RETURN_ADDRESS));
            assert_eq!(looks_at_return_address(function), truth);
            looking += u32::from(truth);
            quick += u32::from(!may_look_at_return_address(function));
        }
        assert!(looking > 10 && quick > 100, "{looking} {quick}");
        // test eax, eax; jne over 8 bytes: not a shift of the return address by the instruction's tail.
        let code = [&[0x90; 60][..], &[0x85, 0xc0, 0x75, 8], &[0x90; 8]].concat();
        assert!(has_distance(&code) && !may_look_at_return_address(&code));
    }
}
