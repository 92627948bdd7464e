//! The process that something belongs to, for what a forked child copies and must leave alone.

/// The process that made a thing. A forked child has a copy of the thing, but neither its threads nor its rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u32);

impl Owner {
    /// Names the calling process.
    pub(crate) fn this_process() -> Owner {
        Owner(std::process::id())
    }

    /// Returns whether the calling process is the owner.
    pub(crate) fn is_this_process(self) -> bool {
        self == Owner::this_process()
    }
}
