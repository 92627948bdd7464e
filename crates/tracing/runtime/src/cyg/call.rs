//! What a hook's call tells of itself, and whether other calls are around it.

use crate::shadow::Entry;
use crate::{arch, sys};
use core::ptr;
use dioptra_tracelayout::message::thread::{ENTRY_NO_RETURN, operand};

/// How far up the stack a return address is looked for, in words from the hook's slot: most functions have smaller frames.
pub const SEARCHED: u64 = 128;
/// How far up the stack it is looked for where what was found turns out to be none, in words.
const LARGEST_FRAME: u64 = 64 * SEARCHED;
/// How far from a function's beginning its hook may be called; further away it is a copy of it, inlined into another.
const BEGINNING: u64 = 4096;
/// How far above the stack pointer memory is read without a question: no other stack begins so near.
const NEAR: u64 = 4096;
/// How many bits of an entry's frame pointer tell of its site; the others, how far its slot is above the hook's.
const SITE_BITS: u32 = 48;
/// From the place of a return address to the slot of its call: never that of a call through a thunk.
pub const BELOW: u64 = 2;

/// A hook's call, as it tells of itself.
#[derive(Clone, Copy)]
pub struct Call {
    /// The function's address.
    pub function: u64,
    /// Where the call will return to.
    pub caller: u64,
    /// The hook's slot: right below the function's frame.
    pub stack: u64,
    /// Where the hook was called.
    pub site: u64,
    /// Below the place of the return address; if that is not known, at the lower end of the frame.
    pub slot: u64,
    /// Whether it is known.
    pub is_known: bool,
    /// The frame pointer of a function that ends, which may be its own; 0 of one that begins.
    frame: u64,
}

impl Call {
    #[inline(always)]
    pub fn new(function: u64, caller: u64, stack: u64, site: u64, frame: u64) -> Call {
        let word = |at: u64| {
            // SAFETY: from the stack pointer up to the return address, which was found there, it is the function's frame.
            unsafe { ptr::with_exposed_provenance::<u64>(at as usize).read_volatile() }
        };
        // A hook that a function ends in a jump to returns to the function's caller itself.
        let is_jump = site == caller;
        let place = if is_jump {
            arch::jumped_from(stack)
        } else {
            let mut places = (1..SEARCHED).map(|at| stack + at * 8);
            places.find(|&at| word(at) == caller)
        };
        Call {
            function,
            caller,
            stack,
            site,
            slot: match place {
                Some(place) => place - BELOW,
                // The frame is gone: no call's slot.
                None if is_jump => stack + 7,
                None => stack + 8,
            },
            is_known: place.is_some(),
            frame,
        }
    }

    /// Returns a call whose slot is known.
    #[inline(always)]
    pub fn at(site: u64, stack: u64, slot: u64, caller: u64) -> Call {
        Call {
            function: 0,
            caller,
            stack,
            site,
            slot,
            is_known: true,
            frame: 0,
        }
    }

    /// Whether the call of an entry that hides all that it calls is around a hook's, which lies further down: nothing else
    /// lies where its return address is.
    #[inline]
    pub fn is_below(entry: &Entry, stack: u64) -> bool {
        let place = entry.slot.wrapping_add(BELOW);
        let word = ptr::with_exposed_provenance::<u64>(place as usize);
        // SAFETY: near above the stack pointer, and it was a place on a stack.
        place.wrapping_sub(stack) >= NEAR || unsafe { word.read_volatile() } == entry.return_address
    }

    /// Whether an entry, the innermost one, can be around this call, as far as can be said at once. `outer` is the slot of
    /// the entry around it.
    #[inline]
    pub fn is_in(&self, entry: &Entry, outer: u64) -> bool {
        if entry.slot == self.slot {
            return self.shares_frame(entry);
        }
        entry.slot > self.slot && !self.has_ended(entry, outer)
    }

    /// Whether an entry with the same slot is that of a function that this one was inlined into, and has not ended.
    #[inline]
    fn shares_frame(&self, entry: &Entry) -> bool {
        if !self.is_known || entry.return_address == 0 {
            return true;
        }
        let site = site(entry);
        if entry.return_address != self.caller || site == self.site {
            return false;
        }
        // It was called from the same place. It is a function of its own if it begins near here, and the other's hook was not
        // called in between.
        let is_own = self.site.wrapping_sub(self.function) < BEGINNING
            && !(self.function <= site && site <= self.site);
        !is_own
    }

    /// Whether something else lies where the return address of an entry further up did.
    #[inline]
    fn has_ended(&self, entry: &Entry, outer: u64) -> bool {
        let is_near = entry.slot.wrapping_sub(self.stack) < NEAR;
        if entry.flags & ENTRY_NO_RETURN == 0 || entry.return_address == 0 || !is_near {
            return false;
        }
        let place = entry.slot + BELOW;
        let word = ptr::with_exposed_provenance::<u64>(place as usize);
        // SAFETY: near above the stack pointer, and it was a place on a stack.
        let is_there = unsafe { word.read_volatile() } == entry.return_address;
        !is_there && !lies_above(entry.return_address, place, outer)
    }

    /// Whether the call of an entry further up has certainly not ended: its return address is in its place, or nothing is known
    /// of that. `stack` is the hook's slot.
    #[inline(always)]
    pub fn is_open(entry: &Entry, stack: u64) -> bool {
        let is_near = entry.slot.wrapping_sub(stack) < NEAR;
        if entry.flags & ENTRY_NO_RETURN == 0 || entry.return_address == 0 || !is_near {
            return true;
        }
        let word = ptr::with_exposed_provenance::<u64>((entry.slot + BELOW) as usize);
        // SAFETY: near above the stack pointer, and it was a place on a stack.
        unsafe { word.read_volatile() == entry.return_address }
    }

    /// How many of the entries have ended without saying so.
    pub fn stale(&self, entries: &[Entry]) -> usize {
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

    /// Its entry.
    #[inline]
    pub fn entry(&self, id: u32, flags: u32, spare: u64) -> Entry {
        Entry {
            frame: self.site | self.slot.wrapping_sub(self.stack) << SITE_BITS,
            return_address: if self.is_known { self.caller } else { 0 },
            slot: self.slot,
            function: operand(id),
            flags: ENTRY_NO_RETURN | flags,
            spare,
        }
    }

    /// Whether an entry of the function that ends is this call's. Where the return address lies may have been seen wrong: an
    /// earlier call may have left the same one in the frame.
    #[inline]
    pub fn is_of(&self, entry: &Entry) -> bool {
        // A hook that a function ends in a jump to is where hooks of that function's caller are.
        let is_jump = self.site == self.caller;
        entry.slot == self.slot || stack(entry) == self.stack && !is_jump || self.has_grown(entry)
    }

    /// Whether it is that of an entry whose frame has grown since (`alloca`, arrays of variable size): neither its stack pointer
    /// nor what lies near it is where it was, but such functions have a frame pointer, and their return address lies behind
    /// what that leads to.
    #[cold]
    fn has_grown(&self, entry: &Entry) -> bool {
        let place = self.frame.wrapping_add(8);
        let is_around = self.frame >= self.stack
            && place.wrapping_sub(BELOW) >= entry.slot
            && stack(entry) > self.stack;
        is_around
            && (entry.return_address == self.caller || entry.return_address == 0)
            && sys::peek(sys::pid(), place) == Some(self.caller)
    }

    /// Whether it may be, if none is for certain: further down, where nothing is any more; or nowhere is known where the
    /// return address lies.
    pub fn may_be_of(&self, entry: &Entry) -> bool {
        let is_unknown = entry.return_address == 0 && !self.is_known;
        entry.slot <= self.slot || is_unknown && entry.slot - self.slot < SEARCHED * 8
    }
}

/// Of an entry, where its hook was called.
fn site(entry: &Entry) -> u64 {
    entry.frame & ((1 << SITE_BITS) - 1)
}

/// Of an entry, its hook's slot.
fn stack(entry: &Entry) -> u64 {
    entry.slot.wrapping_sub(entry.frame >> SITE_BITS)
}

/// Whether a return address lies a little above a place on the stack, and below that of the call around. What lay at the
/// place may have been left there by an earlier call, in a part of the frame that had not been written yet.
#[cold]
fn lies_above(return_address: u64, place: u64, outer: u64) -> bool {
    let room = match outer > place {
        true => (outer.saturating_add(BELOW) - place) / 8,
        // That call is on another stack.
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

    /// The address of the outer function, of its call of the hook, and of the code to which it returns.
    const OUTER: u64 = 0x1_0000;
    const OUTER_SITE: u64 = OUTER + 20;
    const CALLER: u64 = 0x5_0000;
    /// The same addresses of a function that the outer one calls.
    const INNER: u64 = 0x2_0000;
    const INNER_SITE: u64 = INNER + 20;
    const INNER_CALLER: u64 = OUTER + 60;

    /// Memory that is used as a stack: the outer function's return address is in word 40, that of the inner one in word 20.
    struct Stack([u64; 1024]);

    impl Stack {
        fn new() -> Stack {
            let mut words = [0; 1024];
            (words[40], words[20]) = (CALLER, INNER_CALLER);
            Stack(words)
        }

        fn address(&self, word: usize) -> u64 {
            (&raw const self.0[word]).expose_provenance() as u64
        }

        /// Returns the call in which the outer function calls its hook with this stack pointer.
        fn outer(&self, word: usize) -> Call {
            Call::new(OUTER, CALLER, self.address(word), OUTER_SITE, 0)
        }

        fn inner(&self) -> Call {
            Call::new(INNER, INNER_CALLER, self.address(12), INNER_SITE, 0)
        }
    }

    #[test]
    fn a_calls_place_is_that_of_its_return_address() {
        let stack = Stack::new();
        let call = stack.outer(30);
        assert!(call.is_known);
        assert_eq!(call.slot, stack.address(40) - BELOW);
        // The return address is not on the stack as far up as is searched.
        let call = Call::new(OUTER, 77, stack.address(30), OUTER_SITE, 0);
        assert!(!call.is_known);
        assert_eq!(call.slot, stack.address(31));
    }

    #[test]
    fn a_call_is_around_others_until_its_return_address_is_gone() {
        let mut stack = Stack::new();
        let entry = stack.outer(30).entry(1, 0, 0);
        // Another call is around that one: the search ends there.
        let around = Entry {
            slot: stack.address(60),
            ..Entry::BOTTOM
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
        // There it is a call's that is around that one.
        let outer = stack.address(42);
        assert!(!stack.inner().is_in(&entry, outer));
    }

    #[test]
    fn calls_further_down_have_ended() {
        let stack = Stack::new();
        let outer = stack.outer(30).entry(1, 0, 0);
        let inner = stack.inner().entry(2, 0, 0);
        assert_eq!(stack.inner().stale(&[outer]), 0);
        // The outer function calls another hook, where it had called the inner function.
        let next = Call::new(INNER, CALLER, stack.address(30), OUTER_SITE + 40, 0);
        assert_eq!(next.stale(&[outer, inner]), 1);
        assert_eq!(next.stale(&[outer]), 0);
    }

    #[test]
    fn inlined_functions_share_a_frame() {
        let stack = Stack::new();
        let entry = stack.outer(30).entry(1, 0, 0);
        // A function that lies elsewhere, called from within the outer one.
        let inlined = Call::new(INNER, CALLER, stack.address(30), OUTER_SITE + 8, 0);
        assert!(inlined.is_in(&entry, NO_SLOT));
        // The outer function once more, called from the same place: the first call has ended.
        assert!(!stack.outer(30).is_in(&entry, NO_SLOT));
        // Another function with a frame of its own in the same place.
        let own = Call::new(INNER, CALLER, stack.address(30), INNER_SITE, 0);
        assert!(!own.is_in(&entry, NO_SLOT));
        // The same place, and another caller.
        let other = Call::at(OUTER_SITE + 8, stack.address(30), entry.slot, CALLER + 1);
        assert!(!other.is_in(&entry, NO_SLOT));
    }

    #[test]
    fn an_end_is_that_of_its_call_wherever_the_stack_pointer_is() {
        let mut stack = Stack::new();
        let entry = stack.outer(30).entry(1, 0, 0);
        assert!(stack.outer(30).is_of(&entry));
        assert!(!stack.inner().is_of(&entry));
        // The frame has grown, and an old return address lies in it.
        stack.0[10] = CALLER;
        let end = |frame| Call::new(OUTER, CALLER, stack.address(4), OUTER_SITE + 90, frame);
        assert_eq!(end(0).slot, stack.address(10) - BELOW);
        assert!(!end(0).is_of(&entry));
        assert!(end(stack.address(39)).is_of(&entry));
        // A frame pointer that leads to something else.
        assert!(!end(stack.address(50)).is_of(&entry));
    }

    #[test]
    fn what_hides_its_callees_is_around_them_until_it_returns() {
        let mut stack = Stack::new();
        let entry = stack.outer(30).entry(1, 0, 0);
        assert!(Call::is_below(&entry, stack.address(12)));
        stack.0[40] = 0;
        assert!(!Call::is_below(&entry, stack.address(12)));
    }
}
