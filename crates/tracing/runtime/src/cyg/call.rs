//! The position of a compiler-made hook's call, and the calls around it.
//!
//! ```text
//! stack, addresses rising:
//! | hook's slot | the function's frame …             | return address | caller's frame …
//!   HookCall::stack                              HookCall::slot ^ 2 bytes below the return address
//! ```

use crate::shadow::ShadowEntry;
use crate::{arch, sys};
use core::ptr;
use dioptra_tracelayout::message::thread::{ENTRY_NO_RETURN, operand};

/// The number of words above the hook's slot in which a return address is searched at first. Most functions have
/// smaller frames.
pub const SEARCHED: u64 = 128;
/// The number of words that are searched if the first match turns out to be wrong.
const LARGEST_FRAME: u64 = 64 * SEARCHED;
/// The largest distance in bytes of a function's hook from the function's beginning. Further away the hook belongs to
/// a copy that is inlined into another function.
const BEGINNING: u64 = 4096;
/// The distance in bytes above the stack pointer in which memory is read without asking the kernel: no other stack
/// begins so near.
const NEAR: u64 = 4096;
/// The number of bits of an entry's frame pointer that hold the site. The other bits hold the distance of the slot
/// from the hook's slot.
const SITE_BITS: u32 = 48;
/// The distance in bytes of a call's slot below its return address, so that the slot is never that of a call through
/// a thunk.
pub const BELOW: u64 = 2;

/// A call of a hook, with the facts that the hook passes.
#[derive(Clone, Copy)]
pub struct HookCall {
    /// The function's address.
    pub function: u64,
    /// The address to which the call will return.
    pub caller: u64,
    /// The hook's slot: right below the function's frame.
    pub stack: u64,
    /// The address from which the hook was called.
    pub site: u64,
    /// The call's slot, below the return address. If the position of that is not known: the lower end of the frame.
    pub slot: u64,
    /// True if the position of the return address is known.
    pub is_known: bool,
    /// The frame pointer at a function's end, which may be its own; 0 at a beginning.
    frame: u64,
}

impl HookCall {
    #[inline(always)]
    pub fn new(function: u64, caller: u64, stack: u64, site: u64, frame: u64) -> HookCall {
        let word = |at: u64| {
            // SAFETY: from the stack pointer up to the return address, which was found there, the memory is the
            // function's frame.
            unsafe { ptr::with_exposed_provenance::<u64>(at as usize).read_volatile() }
        };
        // A function that ends in a jump to the hook: the hook returns to the function's caller itself.
        let is_jump = site == caller;
        let place = if is_jump {
            arch::jumped_from(stack)
        } else {
            let mut places = (1..SEARCHED).map(|at| stack + at * 8);
            places.find(|&at| word(at) == caller)
        };
        HookCall {
            function,
            caller,
            stack,
            site,
            slot: match place {
                Some(place) => place - BELOW,
                // The frame is gone: an address that is no call's slot.
                None if is_jump => stack + 7,
                None => stack + 8,
            },
            is_known: place.is_some(),
            frame,
        }
    }

    /// Returns a call whose slot is known.
    #[inline(always)]
    pub fn at(site: u64, stack: u64, slot: u64, caller: u64) -> HookCall {
        HookCall {
            function: 0,
            caller,
            stack,
            site,
            slot,
            is_known: true,
            frame: 0,
        }
    }

    /// Returns true if the call of an entry that hides the calls below it is around the call of a hook, which lies
    /// further down: the entry's return address is still in its place.
    #[inline]
    pub fn is_below(entry: &ShadowEntry, stack: u64) -> bool {
        let place = entry.slot.wrapping_add(BELOW);
        let word = ptr::with_exposed_provenance::<u64>(place as usize);
        // SAFETY: near above the stack pointer, and once a slot on a stack.
        place.wrapping_sub(stack) >= NEAR || unsafe { word.read_volatile() } == entry.return_address
    }

    /// Returns true if the call of the innermost entry may be around this call, as far as a quick look can say.
    /// `outer` is the slot of the entry around that one.
    #[inline]
    pub fn is_in(&self, entry: &ShadowEntry, outer: u64) -> bool {
        if entry.slot == self.slot {
            return self.shares_frame(entry);
        }
        entry.slot > self.slot && !self.has_ended(entry, outer)
    }

    /// Returns true if the entry with the same slot is that of a function that this one was inlined into, and has not
    /// ended.
    #[inline]
    fn shares_frame(&self, entry: &ShadowEntry) -> bool {
        if !self.is_known || entry.return_address == 0 {
            return true;
        }
        let site = site(entry);
        if entry.return_address != self.caller || site == self.site {
            return false;
        }
        // The hook was called from the same address. The function has a frame of its own if it begins near here and
        // the other function's hook was not called in between.
        let is_own = self.site.wrapping_sub(self.function) < BEGINNING
            && !(self.function <= site && site <= self.site);
        !is_own
    }

    /// Returns true if an entry further up has lost its return address on the stack.
    #[inline]
    fn has_ended(&self, entry: &ShadowEntry, outer: u64) -> bool {
        let is_near = entry.slot.wrapping_sub(self.stack) < NEAR;
        if entry.flags & ENTRY_NO_RETURN == 0 || entry.return_address == 0 || !is_near {
            return false;
        }
        let place = entry.slot + BELOW;
        let word = ptr::with_exposed_provenance::<u64>(place as usize);
        // SAFETY: near above the stack pointer, and once a slot on a stack.
        let is_there = unsafe { word.read_volatile() } == entry.return_address;
        !is_there && !lies_above(entry.return_address, place, outer)
    }

    /// Returns true if the call of an entry further up may be open: its return address is in its place, or its
    /// position is not known. `stack` is the hook's slot.
    #[inline(always)]
    pub fn is_open(entry: &ShadowEntry, stack: u64) -> bool {
        let is_near = entry.slot.wrapping_sub(stack) < NEAR;
        if entry.flags & ENTRY_NO_RETURN == 0 || entry.return_address == 0 || !is_near {
            return true;
        }
        let word = ptr::with_exposed_provenance::<u64>((entry.slot + BELOW) as usize);
        // SAFETY: near above the stack pointer, and once a slot on a stack.
        unsafe { word.read_volatile() == entry.return_address }
    }

    /// Returns the number of innermost entries whose calls have ended without a report.
    pub fn stale(&self, entries: &[ShadowEntry]) -> usize {
        let cut = sys::Cut::at(self.slot);
        let mut stale = 0;
        for (count, entry) in entries.iter().rev().enumerate() {
            let is_left = entry.slot < self.slot && cut.leaves(entry.slot);
            let is_near = entry.slot.wrapping_sub(self.slot) < NEAR;
            let around = entries.len().checked_sub(count + 2);
            let outer = around.and_then(|at| entries.get(at));
            let outer = outer.map_or(u64::MAX, |entry| entry.slot);
            if is_left || is_near && !self.is_in(entry, outer) {
                stale = count + 1;
            } else if !is_near {
                break;
            }
        }
        stale
    }

    /// Returns the call's entry.
    #[inline]
    pub fn entry(&self, id: u32, flags: u32, spare: u64) -> ShadowEntry {
        ShadowEntry {
            frame: self.site | self.slot.wrapping_sub(self.stack) << SITE_BITS,
            return_address: if self.is_known { self.caller } else { 0 },
            slot: self.slot,
            function: operand(id),
            flags: ENTRY_NO_RETURN | flags,
            spare,
        }
    }

    /// Returns true if an entry of the function that ends is this call's. The position of the return address may have
    /// been found wrong: an earlier call may have left the same word in the frame.
    #[inline]
    pub fn is_of(&self, entry: &ShadowEntry) -> bool {
        // A hook that a function ends in a jump to lies where hooks of that function's caller lie.
        let is_jump = self.site == self.caller;
        entry.slot == self.slot || stack(entry) == self.stack && !is_jump || self.has_grown(entry)
    }

    /// Returns true if an entry is this call's though the frame has grown since (`alloca`, arrays of variable size).
    /// The stack pointer has moved then. But such functions have a frame pointer, and their return address lies
    /// behind the word to which that leads.
    #[cold]
    fn has_grown(&self, entry: &ShadowEntry) -> bool {
        let place = self.frame.wrapping_add(8);
        let is_around = self.frame >= self.stack
            && place.wrapping_sub(BELOW) >= entry.slot
            && stack(entry) > self.stack;
        is_around
            && (entry.return_address == self.caller || entry.return_address == 0)
            && sys::peek(sys::pid(), place) == Some(self.caller)
    }

    /// Returns true if an entry may be this call's when none is for certain: the entry lies further down, where no
    /// call is any more, or the position of the return address is known nowhere.
    pub fn may_be_of(&self, entry: &ShadowEntry) -> bool {
        let is_unknown = entry.return_address == 0 && !self.is_known;
        entry.slot <= self.slot || is_unknown && entry.slot - self.slot < SEARCHED * 8
    }
}

/// Returns the address from which an entry's hook was called.
fn site(entry: &ShadowEntry) -> u64 {
    entry.frame & ((1 << SITE_BITS) - 1)
}

/// Returns the slot of an entry's hook.
fn stack(entry: &ShadowEntry) -> u64 {
    entry.slot.wrapping_sub(entry.frame >> SITE_BITS)
}

/// Returns true if a return address lies a little above `place` on the stack, and below the return address of the
/// call around. The word at `place` may have been left there by an earlier call, in a part of the frame that had not
/// been written yet.
#[cold]
fn lies_above(return_address: u64, place: u64, outer: u64) -> bool {
    let room = match outer > place {
        true => (outer.saturating_add(BELOW) - place) / 8,
        // The call around is on another stack.
        false => u64::MAX,
    };
    let mut left = room.saturating_sub(1).min(LARGEST_FRAME);
    let mut words = [0; SEARCHED as usize];
    let mut at = place + 8;
    while left > 0 {
        let count = left.min(SEARCHED);
        let part = words.get_mut(..count as usize).unwrap_or_default();
        let found = sys::read_memory(sys::pid(), at, part);
        if found.contains(&return_address) {
            return true;
        }
        if found.len() < count as usize {
            // The stack ends.
            return false;
        }
        left -= count;
        at += count * 8;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use dioptra_tracelayout::message::thread::NO_SLOT;

    /// The address of the outer function. The next two are its call of the hook and the code to which it returns.
    const OUTER: u64 = 0x1_0000;
    const OUTER_SITE: u64 = OUTER + 20;
    const CALLER: u64 = 0x5_0000;
    /// The same addresses of a function that the outer one calls.
    const INNER: u64 = 0x2_0000;
    const INNER_SITE: u64 = INNER + 20;
    const INNER_CALLER: u64 = OUTER + 60;

    /// Memory that serves as a stack: the outer function's return address is in word 40, that of the inner one in
    /// word 20.
    struct FakeStack([u64; 1024]);

    impl FakeStack {
        fn new() -> FakeStack {
            let mut words = [0; 1024];
            (words[40], words[20]) = (CALLER, INNER_CALLER);
            FakeStack(words)
        }

        fn address(&self, word: usize) -> u64 {
            (&raw const self.0[word]).expose_provenance() as u64
        }

        /// Returns the call in which the outer function calls its hook with this stack pointer.
        fn outer(&self, word: usize) -> HookCall {
            HookCall::new(OUTER, CALLER, self.address(word), OUTER_SITE, 0)
        }

        fn inner(&self) -> HookCall {
            HookCall::new(INNER, INNER_CALLER, self.address(12), INNER_SITE, 0)
        }
    }

    #[test]
    fn a_calls_place_is_that_of_its_return_address() {
        let stack = FakeStack::new();
        let call = stack.outer(30);
        assert!(call.is_known);
        assert_eq!(call.slot, stack.address(40) - BELOW);
        // The return address lies further up the stack than the search goes.
        let call = HookCall::new(OUTER, 77, stack.address(30), OUTER_SITE, 0);
        assert!(!call.is_known);
        assert_eq!(call.slot, stack.address(31));
    }

    #[test]
    fn a_call_is_around_others_until_its_return_address_is_gone() {
        let mut stack = FakeStack::new();
        let entry = stack.outer(30).entry(1, 0, 0);
        // Another call is around that one: the search ends there.
        let around = ShadowEntry {
            slot: stack.address(60),
            ..ShadowEntry::BOTTOM
        };
        assert!(stack.inner().is_in(&entry, around.slot));
        assert_eq!(stack.inner().stale(&[around, entry]), 0);
        stack.0[40] = 0;
        assert!(!stack.inner().is_in(&entry, around.slot));
        assert_eq!(stack.inner().stale(&[around, entry]), 1);
        // An earlier call had left the word there: the return address lies further up.
        stack.0[44] = CALLER;
        assert!(stack.inner().is_in(&entry, around.slot));
        assert_eq!(stack.inner().stale(&[around, entry]), 0);
        // The word is the return address of the call around.
        let outer = stack.address(42);
        assert!(!stack.inner().is_in(&entry, outer));
    }

    #[test]
    fn calls_further_down_have_ended() {
        let stack = FakeStack::new();
        let outer = stack.outer(30).entry(1, 0, 0);
        let inner = stack.inner().entry(2, 0, 0);
        assert_eq!(stack.inner().stale(&[outer]), 0);
        // The outer function calls another hook, where it had called the inner function.
        let next = HookCall::new(INNER, CALLER, stack.address(30), OUTER_SITE + 40, 0);
        assert_eq!(next.stale(&[outer, inner]), 1);
        assert_eq!(next.stale(&[outer]), 0);
    }

    #[test]
    fn inlined_functions_share_a_frame() {
        let stack = FakeStack::new();
        let entry = stack.outer(30).entry(1, 0, 0);
        // A function that lies elsewhere, called from within the outer one.
        let inlined = HookCall::new(INNER, CALLER, stack.address(30), OUTER_SITE + 8, 0);
        assert!(inlined.is_in(&entry, NO_SLOT));
        // The outer function once more, called from the same place: the first call has ended.
        assert!(!stack.outer(30).is_in(&entry, NO_SLOT));
        // Another function with a frame of its own in the same place.
        let own = HookCall::new(INNER, CALLER, stack.address(30), INNER_SITE, 0);
        assert!(!own.is_in(&entry, NO_SLOT));
        // The same place, and another caller.
        let other = HookCall::at(OUTER_SITE + 8, stack.address(30), entry.slot, CALLER + 1);
        assert!(!other.is_in(&entry, NO_SLOT));
    }

    #[test]
    fn an_end_is_that_of_its_call_wherever_the_stack_pointer_is() {
        let mut stack = FakeStack::new();
        let entry = stack.outer(30).entry(1, 0, 0);
        assert!(stack.outer(30).is_of(&entry));
        assert!(!stack.inner().is_of(&entry));
        // The frame has grown, and an old return address lies in it.
        stack.0[10] = CALLER;
        let end = |frame| HookCall::new(OUTER, CALLER, stack.address(4), OUTER_SITE + 90, frame);
        assert_eq!(end(0).slot, stack.address(10) - BELOW);
        assert!(!end(0).is_of(&entry));
        assert!(end(stack.address(39)).is_of(&entry));
        // A frame pointer that leads to something else.
        assert!(!end(stack.address(50)).is_of(&entry));
    }

    #[test]
    fn what_hides_its_callees_is_around_them_until_it_returns() {
        let mut stack = FakeStack::new();
        let entry = stack.outer(30).entry(1, 0, 0);
        assert!(HookCall::is_below(&entry, stack.address(12)));
        stack.0[40] = 0;
        assert!(!HookCall::is_below(&entry, stack.address(12)));
    }
}
