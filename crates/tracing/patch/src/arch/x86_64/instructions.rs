//! Instructions that do nothing.

use iced_x86::Code;

/// Returns whether an instruction does nothing, and is meant to: a `nop` of any length, which reads no memory even if it
/// names some.
pub fn is_nop(code: Code) -> bool {
    matches!(
        code,
        Code::Nopw | Code::Nopd | Code::Nopq | Code::Nop_rm16 | Code::Nop_rm32 | Code::Nop_rm64
    )
}

#[cfg(test)]
mod tests {
    use crate::arch::{Arch, X86_64};

    #[test]
    fn breakpoints_may_lie_between_instructions() {
        assert!(X86_64::is_whole(&[0xe8, 1, 2, 3, 4]));
        assert!(X86_64::is_whole(&[0x90; 5]));
        assert!(!X86_64::is_one_instruction(&[0x90; 5]));
        assert!(X86_64::is_one_instruction(&[0x0f, 0x1f, 0x44, 0, 0]));
        assert!(X86_64::is_whole(&[0x0f, 0x1f, 0x44, 0, 0]));
        // The beginning of `lea rdi, [rip + ...]`.
        assert!(X86_64::is_whole(&[0x48, 0x8d, 0x3d, 1, 2]));
        // push rbp; mov rbp, rsp; push rbx.
        assert!(!X86_64::is_whole(&[0x55, 0x48, 0x89, 0xe5, 0x53]));
        assert!(!X86_64::is_whole(&[0x90, 0x90, 0x55, 0x90, 0x90]));
    }

    /// The forms of `nop` in the manuals of Intel and AMD, each with another instruction behind it.
    #[test]
    fn nops_of_any_length_do_nothing() {
        let nops: [&[u8]; 7] = [
            &[0x90],
            &[0x66, 0x90],
            &[0x48, 0x90],
            &[0x0f, 0x1f, 0x00],
            &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
            // nop qword ptr [rax], and the same of a register.
            &[0x48, 0x0f, 0x1f, 0x00],
            &[0x48, 0x0f, 0x1f, 0xc0],
        ];
        for nop in nops {
            assert!(X86_64::is_nothing(&[nop, &[0x90]].concat()), "{nop:x?}");
            assert!(!X86_64::is_nothing(&[nop, &[0x55]].concat()), "{nop:x?}");
        }
        // pause, and xchg r8d, eax, are not nops though their opcode is 0x90.
        assert!(!X86_64::is_nothing(&[0xf3, 0x90]) && !X86_64::is_nothing(&[0x41, 0x90]));
    }
}
