//! Frames of signal handlers.
//!
//! The kernel stores the registers of the interrupted code on the stack and lets the handler return to a trampoline, which
//! asks the kernel to restore them: `__restore_rt` of the C library on 64-bit x86, `__kernel_rt_sigreturn` of the vdso on
//! 64-bit Arm. Compilers mark its unwind information with the letter `S` (Linux Standard Base, "`.eh_frame`"). framehop does
//! not evaluate that information, since it reads memory for the caller's stack pointer. The place of the registers belongs to
//! the kernel's ABI (`struct ucontext` in `<asm/ucontext.h>`), so they are read from there.

use std::ops::Range;

use framehop::Error;
use framehop::aarch64::UnwindRegsAarch64;
use framehop::x86_64::UnwindRegsX86_64;
use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use rustc_hash::FxHashSet;

/// Reads a word of the stack at an address.
pub(super) type ReadStack<'a> = &'a mut dyn FnMut(u64) -> Result<u64, ()>;

/// Registers that the kernel can restore after a signal.
pub(super) trait SignalRegisters: Sized {
    /// Reads the interrupted code's registers, and its instruction pointer. `self` has the trampoline's stack pointer.
    ///
    /// # Errors
    /// The copy of the stack lacks a register.
    fn interrupted(&self, read: ReadStack<'_>) -> Result<(Self, u64), Error>;

    /// Returns the stack pointer.
    fn stack_pointer(&self) -> u64;
}

/// Returns the word that lies `offset` bytes above the stack pointer.
fn word(read: ReadStack<'_>, stack_pointer: u64, offset: u64) -> Result<u64, Error> {
    let address = stack_pointer
        .checked_add(offset)
        .ok_or(Error::IntegerOverflow)?;
    read(address).map_err(|()| Error::CouldNotReadStack(address))
}

impl SignalRegisters for UnwindRegsX86_64 {
    fn interrupted(&self, read: ReadStack<'_>) -> Result<(Self, u64), Error> {
        // The stack pointer points to a `struct ucontext`: 40 bytes, then r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip.
        let bp = word(read, self.sp(), 120)?;
        let sp = word(read, self.sp(), 160)?;
        let ip = word(read, self.sp(), 168)?;
        Ok((UnwindRegsX86_64::new(ip, sp, bp), ip))
    }

    fn stack_pointer(&self) -> u64 {
        self.sp()
    }
}

impl SignalRegisters for UnwindRegsAarch64 {
    fn interrupted(&self, read: ReadStack<'_>) -> Result<(Self, u64), Error> {
        // The stack pointer points to a `siginfo_t` of 128 bytes. Behind it lies a `struct ucontext`: 176 bytes, a fault's
        // address, then x0 to x30, sp, pc.
        const REGISTERS: u64 = 128 + 176 + 8;
        let fp = word(read, self.sp(), REGISTERS + 29 * 8)?;
        let lr = word(read, self.sp(), REGISTERS + 30 * 8)?;
        let sp = word(read, self.sp(), REGISTERS + 31 * 8)?;
        let pc = word(read, self.sp(), REGISTERS + 32 * 8)?;
        let registers = UnwindRegsAarch64::new_with_ptr_auth_mask(self.lr_mask(), lr, sp, fp);
        Ok((registers, pc))
    }

    fn stack_pointer(&self) -> u64 {
        self.sp()
    }
}

/// Returns the file addresses of all code that the table marks as a trampoline. Damaged tables give those before the damage.
pub(super) fn trampolines(eh_frame: &[u8], bases: &BaseAddresses) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let section = EhFrame::new(eh_frame, LittleEndian);
    let mut marked: FxHashSet<usize> = FxHashSet::default();
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        match entry {
            CieOrFde::Cie(cie) => {
                if cie.is_signal_trampoline() {
                    marked.insert(cie.offset());
                }
            }
            CieOrFde::Fde(partial) => {
                if marked.contains(&partial.cie_offset().0)
                    && let Ok(entry) = partial.parse(EhFrame::cie_from_offset)
                {
                    found.push(entry.initial_address()..entry.end_address());
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use framehop::aarch64::PtrAuthMask;

    /// Words above address 0x1000 that hold their distance from it.
    fn distances(address: u64) -> Result<u64, ()> {
        match address {
            0x1000..0x2000 => Ok(address - 0x1000),
            _ => Err(()),
        }
    }

    #[test]
    fn registers_lie_where_the_kernel_puts_them() {
        let x86 = UnwindRegsX86_64::new(7, 0x1000, 9);
        let (registers, ip) = x86.interrupted(&mut distances).expect("all words");
        assert_eq!(
            (ip, registers.ip(), registers.sp(), registers.bp()),
            (168, 168, 160, 120)
        );
        let arm =
            UnwindRegsAarch64::new_with_ptr_auth_mask(PtrAuthMask::new_no_strip(), 1, 0x1000, 2);
        let (registers, pc) = arm.interrupted(&mut distances).expect("all words");
        assert_eq!(
            (pc, registers.sp(), registers.lr(), registers.fp()),
            (568, 560, 552, 544)
        );
    }

    #[test]
    fn a_cut_copy_names_the_first_missing_word() {
        let x86 = UnwindRegsX86_64::new(7, 0x2000 - 160, 9);
        let missing = x86.interrupted(&mut distances).err();
        assert_eq!(missing, Some(Error::CouldNotReadStack(0x2000)));
    }
}
