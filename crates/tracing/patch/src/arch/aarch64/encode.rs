//! Instructions of 64-bit Arm, as words, and code under construction.

/// The number of a register: 31 is the stack pointer or zero, depending on the instruction.
pub type Register = u32;

/// The first scratch register between functions, which hooks may change.
pub const X16: Register = 16;
/// The second scratch register between functions.
pub const X17: Register = 17;
/// The link register.
pub const LR: Register = 30;
/// The stack pointer.
pub const SP: Register = 31;
/// The register that reads as zero.
pub const ZR: Register = 31;

/// `nop`.
pub const NOP: u32 = 0xd503_201f;
/// `ret`.
pub const RET: u32 = 0xd65f_03c0;
/// `bti c`: a landing pad for calls.
pub const BTI_C: u32 = 0xd503_245f;
/// `bti jc`: a landing pad for calls and jumps.
pub const BTI_JC: u32 = 0xd503_24df;
/// `paciasp`: signs the return address, and is a landing pad for calls.
pub const PACIASP: u32 = 0xd503_233f;
/// `pacibsp`: does the same with the other key.
pub const PACIBSP: u32 = 0xd503_237f;
/// `mov x30, x17`.
pub const RETURN_TO_X17: u32 = 0xaa11_03fe;
/// `mov x17, x30`.
pub const KEEP_RETURN: u32 = 0xaa1e_03f1;
/// The filler of gaps: `brk #0`.
pub const FILL: u32 = 0xd420_0000;

/// A condition.
#[derive(Clone, Copy, Debug)]
pub enum Condition {
    /// Not equal.
    Ne = 1,
    /// Unsigned, at least.
    Hs = 2,
    /// Unsigned, below.
    Lo = 3,
    /// Unsigned, at most.
    Ls = 9,
}

/// Returns the distance of a branch in words, if it fits `bits` bits.
fn words(from: u64, to: u64, bits: u32) -> Option<u32> {
    let distance = to.wrapping_sub(from).cast_signed();
    let fits = distance & 3 == 0 && (distance >> 2) >> (bits - 1) == (distance >> 63);
    fits.then_some((distance >> 2) as u32 & ((1 << bits) - 1))
}

/// Encodes `b` from one address to another; `None` if the target is out of reach.
pub fn b(from: u64, to: u64) -> Option<u32> {
    Some(0x1400_0000 | words(from, to, 26)?)
}

/// Encodes `bl` from one address to another; `None` if the target is out of reach.
pub fn bl(from: u64, to: u64) -> Option<u32> {
    Some(0x9400_0000 | words(from, to, 26)?)
}

/// Encodes `br`.
pub fn br(register: Register) -> u32 {
    0xd61f_0000 | register << 5
}

/// Encodes `ldr` of 64 bits from a place so many bytes ahead.
pub fn ldr_ahead(register: Register, bytes: u32) -> u32 {
    0x5800_0000 | (bytes >> 2) << 5 | register
}

/// Encodes `ldr` of 64 bits.
pub fn ldr(register: Register, base: Register, offset: u32) -> u32 {
    0xf940_0000 | (offset >> 3) << 10 | base << 5 | register
}

/// Encodes `str` of 64 bits.
pub fn str(register: Register, base: Register, offset: u32) -> u32 {
    0xf900_0000 | (offset >> 3) << 10 | base << 5 | register
}

/// Encodes `ldr` of 32 bits.
pub fn ldr_w(register: Register, base: Register, offset: u32) -> u32 {
    0xb940_0000 | (offset >> 2) << 10 | base << 5 | register
}

/// Encodes `stur` of 64 bits at an offset below 256 bytes.
pub fn stur(register: Register, base: Register, offset: u32) -> u32 {
    0xf800_0000 | offset << 12 | base << 5 | register
}

/// Encodes `stur` of 32 bits at an offset below 256 bytes.
pub fn stur_w(register: Register, base: Register, offset: u32) -> u32 {
    0xb800_0000 | offset << 12 | base << 5 | register
}

/// Encodes `sturh` at an offset below 256 bytes.
pub fn stur_h(register: Register, base: Register, offset: u32) -> u32 {
    0x7800_0000 | offset << 12 | base << 5 | register
}

/// Encodes `stp` of two registers of 64 bits.
pub fn stp(first: Register, second: Register, base: Register, offset: u32) -> u32 {
    0xa900_0000 | (offset >> 3) << 15 | second << 10 | base << 5 | first
}

/// Encodes `ldp` of two registers of 64 bits.
pub fn ldp(first: Register, second: Register, base: Register, offset: u32) -> u32 {
    0xa940_0000 | (offset >> 3) << 15 | second << 10 | base << 5 | first
}

/// Encodes `stp` that first moves the stack pointer down by so many bytes.
pub fn push(first: Register, second: Register, bytes: u32) -> u32 {
    let down = (bytes >> 3).wrapping_neg() & 0x7f;
    0xa980_0000 | down << 15 | second << 10 | SP << 5 | first
}

/// Encodes `ldp` that afterwards moves the stack pointer up by so many bytes.
pub fn pop(first: Register, second: Register, bytes: u32) -> u32 {
    0xa8c0_0000 | (bytes >> 3) << 15 | second << 10 | SP << 5 | first
}

/// Encodes `add` of a number below 4096; register 31 is the stack pointer.
pub fn add(to: Register, from: Register, number: u32) -> u32 {
    0x9100_0000 | number << 10 | from << 5 | to
}

/// Encodes `add` of a number below 4096, times 4096.
pub fn add_pages(to: Register, from: Register, number: u32) -> u32 {
    0x9140_0000 | number << 10 | from << 5 | to
}

/// Encodes `sub` of a number below 4096; register 31 is the stack pointer.
pub fn sub(to: Register, from: Register, number: u32) -> u32 {
    0xd100_0000 | number << 10 | from << 5 | to
}

/// Encodes `sub` of a number below 4096, times 4096.
pub fn sub_pages(to: Register, from: Register, number: u32) -> u32 {
    0xd140_0000 | number << 10 | from << 5 | to
}

/// Encodes `sub` of a register.
pub fn sub_register(to: Register, from: Register, what: Register) -> u32 {
    0xcb00_0000 | what << 16 | from << 5 | to
}

/// Encodes `cmp` of two registers.
pub fn cmp(first: Register, second: Register) -> u32 {
    0xeb00_001f | second << 16 | first << 5
}

/// Encodes `lsr` by a number.
pub fn lsr(to: Register, from: Register, by: u32) -> u32 {
    0xd340_fc00 | by << 16 | from << 5 | to
}

/// Encodes `ubfx`, which takes the lower `bits` bits of a register.
pub fn low_bits(to: Register, from: Register, bits: u32) -> u32 {
    0xd340_0000 | (bits - 1) << 10 | from << 5 | to
}

/// Encodes `orr` with a register shifted left by so many bits.
pub fn orr_shifted(to: Register, from: Register, what: Register, by: u32) -> u32 {
    0xaa00_0000 | what << 16 | by << 10 | from << 5 | to
}

/// Encodes `orr` of 32 bits with a register shifted left by one.
pub fn orr_twice_w(to: Register, from: Register, what: Register) -> u32 {
    0x2a00_0400 | what << 16 | from << 5 | to
}

/// Encodes `mov` of a number of 32 bits: two instructions.
pub fn mov_w(to: Register, number: u32) -> [u32; 2] {
    [
        0x5280_0000 | (number & 0xffff) << 5 | to,
        0x72a0_0000 | (number >> 16) << 5 | to,
    ]
}

/// Encodes `mov` of a number of 16 bits.
pub fn mov(to: Register, number: u32) -> u32 {
    0xd280_0000 | number << 5 | to
}

/// Encodes a jump to an address at any distance: four words.
pub fn far_jump(target: u64) -> [u32; 4] {
    [
        ldr_ahead(X16, 8),
        br(X16),
        target as u32,
        (target >> 32) as u32,
    ]
}

/// Encodes `mrs` of the thread pointer.
pub fn thread_pointer(to: Register) -> u32 {
    0xd53b_d040 | to
}

/// Encodes `mrs` of the counter of the system's timer.
pub fn counter(to: Register) -> u32 {
    0xd53b_e040 | to
}

/// A place in code under construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// A branch whose label may not have a place yet.
#[derive(Clone, Copy, Debug)]
enum Branch {
    Always,
    If(Condition),
    NotZero(Register),
}

/// Code under construction.
#[derive(Debug, Default)]
pub struct Code {
    words: Vec<u32>,
    labels: Vec<Option<usize>>,
    branches: Vec<(usize, Branch, Label)>,
}

impl Code {
    /// Adds instructions.
    pub fn put(&mut self, words: &[u32]) {
        self.words.extend(words);
    }

    /// Returns the size of the code in bytes.
    pub fn size(&self) -> u64 {
        4 * self.words.len() as u64
    }

    /// Creates a label without a place.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Gives a label the current place.
    pub fn set(&mut self, label: Label) {
        self.labels[label.0] = Some(self.words.len());
    }

    fn branch(&mut self, branch: Branch, to: Label) {
        self.branches.push((self.words.len(), branch, to));
        self.words.push(0);
    }

    /// Adds `b`.
    pub fn jump(&mut self, to: Label) {
        self.branch(Branch::Always, to);
    }

    /// Adds `b` on a condition.
    pub fn jump_if(&mut self, condition: Condition, to: Label) {
        self.branch(Branch::If(condition), to);
    }

    /// Adds `cbnz` of 64 bits.
    pub fn jump_if_not_zero(&mut self, register: Register, to: Label) {
        self.branch(Branch::NotZero(register), to);
    }

    /// Returns the bytes; `None` if a label has no place or is out of reach, which would be a defect.
    pub fn finish(mut self) -> Option<Vec<u8>> {
        for (at, branch, label) in &self.branches {
            let target = *self.labels.get(label.0)?;
            let (from, to) = (4 * *at as u64, 4 * target? as u64);
            self.words[*at] = match branch {
                Branch::Always => b(from, to)?,
                Branch::If(condition) => {
                    0x5400_0000 | words(from, to, 19)? << 5 | *condition as u32
                }
                Branch::NotZero(register) => 0xb500_0000 | words(from, to, 19)? << 5 | register,
            };
        }
        Some(bytes(&self.words))
    }
}

/// Returns the bytes of words.
pub fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Returns the words of bytes.
pub fn words_of(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| u32::from_le_bytes(*word))
}
