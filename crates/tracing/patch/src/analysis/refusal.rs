//! The reasons why functions can't be traced.

/// The reason why a function can't be traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refused {
    /// The function is shorter than a jump, and something else follows.
    Short,
    /// A jump or another reference leads into the instructions that would be moved.
    Entered,
    /// The function loops to its first instruction.
    Loop,
    /// One of the first instructions can't be moved: a call through a register or a table.
    Instruction,
    /// The first bytes are no known instructions.
    Unknown,
    /// The code does not begin as a function does: its frame is there already, or its return address is not known.
    NoEntry,
    /// The function depends on its caller's address, or returns more than once.
    Special,
    /// Code that was made at run time calls the function, and a garbage collector recognises that by the return
    /// address.
    Sought,
    /// The function looks at its return address or changes it, and would see the tracer's.
    ReturnAddress,
    /// The function uses or changes its caller's frame pointer.
    FramePointer,
    /// The function belongs to the code that throws exceptions, which goes through frames while they are left.
    Unwinder,
    /// The function is a sanitizer's, which runs where no hook may.
    Sanitizer,
    /// The function has a name, but no unwind table says where its frame is.
    NoTable,
    /// The function lies in memory that the program may write to while it runs.
    Written,
    /// The dynamic linker changes the code of the function's module: the code in memory differs from the file's.
    Relocated,
    /// The function moves the stack pointer to a copied stack, or calls one that does: such calls return twice.
    CopiesStacks,
    /// No memory for a thunk is free near the function.
    Far,
}

impl Refused {
    /// Returns the reason in words, for users.
    pub fn reason(self) -> &'static str {
        match self {
            Refused::Short => "shorter than a jump",
            Refused::Entered => "something jumps into its first instructions",
            Refused::Loop => "it loops to its first instruction",
            Refused::Instruction => "its first instructions hold an indirect call",
            Refused::Unknown => "its first bytes are no known instructions",
            Refused::NoEntry => "not an ordinary function entry",
            Refused::Special => "depends on its caller's address or returns twice",
            Refused::Sought => "generated code calls it, and is known by the return address",
            Refused::ReturnAddress => "looks at its return address",
            Refused::FramePointer => "uses the frame pointer in a way of its own",
            Refused::Unwinder => "belongs to the code that throws exceptions",
            Refused::Sanitizer => "belongs to a sanitizer",
            Refused::NoTable => "no unwind table describes it",
            Refused::Written => "it lies in memory that is writable and executable",
            Refused::Relocated => "its module has text relocations",
            Refused::CopiesStacks => "exchanges stacks by copying them, and returns twice",
            Refused::Far => "no memory is free near it",
        }
    }
}
