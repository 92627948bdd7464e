//! Instructions of 64-bit Arm, as words, and code under construction.

/// A register: 31 is the stack pointer or zero, as the instruction has it.
pub type Register = u32;

/// The first scratch register between functions, which hooks may change.
pub const X16: Register = 16;
/// The second one.
pub const X17: Register = 17;
/// The link register.
pub const LR: Register = 30;
/// The stack pointer.
pub const SP: Register = 31;
/// Zero.
pub const ZR: Register = 31;

/// `nop`.
pub const NOP: u32 = 0xd503_201f;
/// `ret`.
pub const RET: u32 = 0xd65f_03c0;
/// `bti c`: where calls may lead.
pub const BTI_C: u32 = 0xd503_245f;
/// `bti jc`.
pub const BTI_JC: u32 = 0xd503_24df;
/// `paciasp`: signs the return address, and is where calls may lead.
pub const PACIASP: u32 = 0xd503_233f;
/// `pacibsp`.
pub const PACIBSP: u32 = 0xd503_237f;
/// `mov x30, x17`.
pub const RETURN_TO_X17: u32 = 0xaa11_03fe;
/// `mov x17, x30`.
pub const KEEP_RETURN: u32 = 0xaa1e_03f1;
/// What fills gaps: `brk #0`.
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

/// The distance of a branch in words, if it fits so many bits.
fn words(from: u64, to: u64, bits: u32) -> Option<u32> {
    let distance = to.wrapping_sub(from).cast_signed();
    let fits = distance & 3 == 0 && (distance >> 2) >> (bits - 1) == (distance >> 63);
    fits.then_some((distance >> 2) as u32 & ((1 << bits) - 1))
}

/// `b` from one address to another.
pub fn b(from: u64, to: u64) -> Option<u32> {
    Some(0x1400_0000 | words(from, to, 26)?)
}

/// `bl`.
pub fn bl(from: u64, to: u64) -> Option<u32> {
    Some(0x9400_0000 | words(from, to, 26)?)
}

/// `br`.
pub fn br(register: Register) -> u32 {
    0xd61f_0000 | register << 5
}

/// `ldr` of 64 bits from a place so many bytes ahead.
pub fn ldr_ahead(register: Register, bytes: u32) -> u32 {
    0x5800_0000 | (bytes >> 2) << 5 | register
}

/// `ldr` of 64 bits.
pub fn ldr(register: Register, base: Register, offset: u32) -> u32 {
    0xf940_0000 | (offset >> 3) << 10 | base << 5 | register
}

/// `str` of 64 bits.
pub fn str(register: Register, base: Register, offset: u32) -> u32 {
    0xf900_0000 | (offset >> 3) << 10 | base << 5 | register
}

/// `ldr` of 32 bits.
pub fn ldr_w(register: Register, base: Register, offset: u32) -> u32 {
    0xb940_0000 | (offset >> 2) << 10 | base << 5 | register
}

/// `stur` of 64 bits, below 256 bytes.
pub fn stur(register: Register, base: Register, offset: u32) -> u32 {
    0xf800_0000 | offset << 12 | base << 5 | register
}

/// `stur` of 32 bits, below 256 bytes.
pub fn stur_w(register: Register, base: Register, offset: u32) -> u32 {
    0xb800_0000 | offset << 12 | base << 5 | register
}

/// `sturh`, below 256 bytes.
pub fn stur_h(register: Register, base: Register, offset: u32) -> u32 {
    0x7800_0000 | offset << 12 | base << 5 | register
}

/// `stp` of 64 bits each.
pub fn stp(first: Register, second: Register, base: Register, offset: u32) -> u32 {
    0xa900_0000 | (offset >> 3) << 15 | second << 10 | base << 5 | first
}

/// `ldp` of 64 bits each.
pub fn ldp(first: Register, second: Register, base: Register, offset: u32) -> u32 {
    0xa940_0000 | (offset >> 3) << 15 | second << 10 | base << 5 | first
}

/// `stp` below the stack pointer, which goes down by so many bytes before.
pub fn push(first: Register, second: Register, bytes: u32) -> u32 {
    let down = (bytes >> 3).wrapping_neg() & 0x7f;
    0xa980_0000 | down << 15 | second << 10 | SP << 5 | first
}

/// `ldp` from the stack pointer, which goes up by so many bytes behind.
pub fn pop(first: Register, second: Register, bytes: u32) -> u32 {
    0xa8c0_0000 | (bytes >> 3) << 15 | second << 10 | SP << 5 | first
}

/// `add` of a number below 4096; register 31 is the stack pointer.
pub fn add(to: Register, from: Register, number: u32) -> u32 {
    0x9100_0000 | number << 10 | from << 5 | to
}

/// `add` of a number below 4096, times 4096.
pub fn add_pages(to: Register, from: Register, number: u32) -> u32 {
    0x9140_0000 | number << 10 | from << 5 | to
}

/// `sub` of a number below 4096; register 31 is the stack pointer.
pub fn sub(to: Register, from: Register, number: u32) -> u32 {
    0xd100_0000 | number << 10 | from << 5 | to
}

/// `sub` of a number below 4096, times 4096.
pub fn sub_pages(to: Register, from: Register, number: u32) -> u32 {
    0xd140_0000 | number << 10 | from << 5 | to
}

/// `sub` of a register.
pub fn sub_register(to: Register, from: Register, what: Register) -> u32 {
    0xcb00_0000 | what << 16 | from << 5 | to
}

/// `cmp` of two registers.
pub fn cmp(first: Register, second: Register) -> u32 {
    0xeb00_001f | second << 16 | first << 5
}

/// `lsr` by a number.
pub fn lsr(to: Register, from: Register, by: u32) -> u32 {
    0xd340_fc00 | by << 16 | from << 5 | to
}

/// The lower bits of a register (`ubfx`), so many.
pub fn low_bits(to: Register, from: Register, bits: u32) -> u32 {
    0xd340_0000 | (bits - 1) << 10 | from << 5 | to
}

/// `orr` with a register shifted left by so many bits.
pub fn orr_shifted(to: Register, from: Register, what: Register, by: u32) -> u32 {
    0xaa00_0000 | what << 16 | by << 10 | from << 5 | to
}

/// `orr` of 32 bits with a register shifted left by one.
pub fn orr_twice_w(to: Register, from: Register, what: Register) -> u32 {
    0x2a00_0400 | what << 16 | from << 5 | to
}

/// `mov` of a number of 32 bits: two instructions.
pub fn mov_w(to: Register, number: u32) -> [u32; 2] {
    [
        0x5280_0000 | (number & 0xffff) << 5 | to,
        0x72a0_0000 | (number >> 16) << 5 | to,
    ]
}

/// `mov` of a number of 16 bits.
pub fn mov(to: Register, number: u32) -> u32 {
    0xd280_0000 | number << 5 | to
}

/// A jump to an address, wherever that is: four words.
pub fn far_jump(target: u64) -> [u32; 4] {
    [
        ldr_ahead(X16, 8),
        br(X16),
        target as u32,
        (target >> 32) as u32,
    ]
}

/// Reads the thread pointer.
pub fn thread_pointer(to: Register) -> u32 {
    0xd53b_d040 | to
}

/// Reads the counter of the system's timer.
pub fn counter(to: Register) -> u32 {
    0xd53b_e040 | to
}

/// A place in code under construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// A branch that waits for its label's place.
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

    /// How many bytes there are.
    pub fn size(&self) -> u64 {
        4 * self.words.len() as u64
    }

    /// A label without a place.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Its place is here.
    pub fn set(&mut self, label: Label) {
        self.labels[label.0] = Some(self.words.len());
    }

    fn branch(&mut self, branch: Branch, to: Label) {
        self.branches.push((self.words.len(), branch, to));
        self.words.push(0);
    }

    /// `b`.
    pub fn jump(&mut self, to: Label) {
        self.branch(Branch::Always, to);
    }

    /// `b` on a condition.
    pub fn jump_if(&mut self, condition: Condition, to: Label) {
        self.branch(Branch::If(condition), to);
    }

    /// `cbnz` of 64 bits.
    pub fn jump_if_not_zero(&mut self, register: Register, to: Label) {
        self.branch(Branch::NotZero(register), to);
    }

    /// The bytes; `None` if a label has no place, or one too far away, which would be a defect.
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

/// The bytes of words.
pub fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The words of bytes.
pub fn words_of(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| u32::from_le_bytes(*word))
}
