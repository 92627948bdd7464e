//! A CPU's thread that arms the events of what runs there, when a burst is due.
//!
//! The thread is bound to its CPU, so that whoever ran there is interrupted anyway and arming its events takes a microsecond;
//! from another CPU it would take an interrupt, and in a virtual machine some sixty. What it interrupted goes on when
//! it sleeps again, and its burst begins.
//!
//! Slots with a [`Trigger`](super::trigger::Trigger) are armed when that expires, the others by the lane's own timer.

use super::random::Random;
use super::schedule::{SHORTEST_LONG, Schedule};
use super::slot::{Slot, SlotOutput};
use super::trigger::Trigger;
use crate::event::EventTarget;
use crate::owner::Owner;
use crate::sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of records that may wait: then nobody takes them in, and no more are made.
const MOST_WAITING: usize = 8 << 20;

/// The most slots that are looked at when a burst is due, to find one whose thread runs and that is not busy.
const SLOTS_LOOKED_AT: usize = 16;

/// The state that a lane's thread and its owner share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub slots: Vec<Slot>,
    turn: usize,
    pub made: SlotOutput,
    pub running: bool,
    quit: bool,
    /// Threads that were found to run on other CPUs.
    pub elsewhere: Vec<(u32, u32)>,
    /// Whether the thread got a real-time priority; unknown until it has begun.
    pub prompt: Option<bool>,
}

/// The least time for which a lane sleeps after it has armed a burst, with its slots unlocked. Meanwhile the recorder takes
/// their records, and adds and removes threads.
const REST: Duration = Duration::from_micros(50);

/// The time for which a lane waits where triggers alone decide.
const IDLE: Duration = Duration::from_secs(10);

/// A CPU's arming thread.
#[derive(Debug)]
pub(super) struct Lane {
    pub cpu: u32,
    common: Arc<Common>,
    thread: Option<JoinHandle<()>>,
    owner: Owner,
}

/// The shared state, and the means to wake the thread when it changed. The thread waits for changes alone, or for triggers
/// too.
#[derive(Debug)]
struct Common {
    shared: Mutex<Shared>,
    changed: Condvar,
    nudge: OwnedFd,
}

impl Common {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        // The state is whole even after a panic: each change is made in one go.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        self.changed.notify_all();
        sys::eventfd_signal(self.nudge.as_fd());
    }
}

impl Lane {
    /// Starts the thread; it does nothing before [`Lane::set_running`] and without slots.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(cpu: u32, schedule: Schedule) -> io::Result<Lane> {
        let common = Arc::new(Common {
            shared: Mutex::default(),
            changed: Condvar::new(),
            nudge: sys::eventfd()?,
        });
        let of_thread = Arc::clone(&common);
        let thread = std::thread::Builder::new()
            .name(format!("windows/{cpu}"))
            .spawn(move || arm_when_due(cpu, &schedule, &of_thread))?;
        Ok(Lane {
            cpu,
            common,
            thread: Some(thread),
            owner: Owner::this_process(),
        })
    }

    pub fn lock(&self) -> MutexGuard<'_, Shared> {
        self.common.lock()
    }

    /// Lets bursts be armed, or no more.
    pub fn set_running(&self, running: bool) {
        let mut shared = self.lock();
        shared.running = running;
        if !running {
            let triggers = shared.slots.iter_mut();
            triggers
                .filter_map(|slot| slot.trigger.as_mut())
                .for_each(Trigger::stop);
        }
        drop(shared);
        self.common.tell();
    }

    /// Adds a slot, whose turn comes.
    pub fn add(&self, slot: Slot) {
        self.lock().slots.push(slot);
        self.common.tell();
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if !self.owner.is_this_process() {
            // A forked child has no such thread, and the lock may have been held when it was copied.
            std::mem::forget(thread);
            return;
        }
        self.lock().quit = true;
        self.common.tell();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn arm_when_due(cpu: u32, schedule: &Schedule, common: &Common) {
    // An offline CPU: from wherever the thread runs then, which takes longer.
    let _ = sys::pin_to(cpu);
    let prompt = sys::become_prompt().is_ok();
    let seed = sys::clock_now(libc::CLOCK_MONOTONIC) ^ (u64::from(cpu) << 48);
    let mut random = Random::new(seed);
    let mut state = common.lock();
    state.prompt = Some(prompt);
    let mut due = None;
    while !state.quit {
        if !state.running || state.slots.is_empty() {
            due = None;
            state = wait_for_change(common, state, None);
            continue;
        }
        let mut fds = state.triggers(schedule, &mut random);
        let timed = state.slots.iter().any(|slot| slot.trigger.is_none());
        let now = Instant::now();
        let next = *due.get_or_insert_with(|| now + wait(schedule, &mut random));
        if timed && now >= next {
            state.arm_next(cpu, schedule, &mut random);
            // From the time it was due: delays do not add up. Long ones are not made up for.
            let after = next + wait(schedule, &mut random);
            due = Some(after.max(Instant::now() + REST));
            continue;
        }
        let left = timed.then(|| next - now);
        if fds.is_empty() {
            state = wait_for_change(common, state, left);
            continue;
        }
        drop(state);
        fds.push(ready_to_read(common.nudge.as_raw_fd()));
        let ready = sys::poll(&mut fds, left.unwrap_or(IDLE)).unwrap_or(0);
        state = common.lock();
        if ready == 0 {
            continue;
        }
        sys::eventfd_clear(common.nudge.as_fd());
        for fd in fds.iter().filter(|fd| fd.revents != 0) {
            state.arm_triggered(fd, cpu, schedule, &mut random);
        }
    }
}

fn wait_for_change<'c>(
    common: &'c Common,
    state: MutexGuard<'c, Shared>,
    most: Option<Duration>,
) -> MutexGuard<'c, Shared> {
    // The state is read after this, with all changes until now.
    sys::eventfd_clear(common.nudge.as_fd());
    match most {
        None => (common.changed.wait(state)).unwrap_or_else(PoisonError::into_inner),
        Some(most) => {
            let waited = common.changed.wait_timeout(state, most);
            waited.unwrap_or_else(PoisonError::into_inner).0
        }
    }
}

fn ready_to_read(fd: i32) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

fn wait(schedule: &Schedule, random: &mut Random) -> Duration {
    Duration::from_nanos(long(schedule, random))
}

/// Draws the time to the next burst, in nanoseconds.
fn long(schedule: &Schedule, random: &mut Random) -> u64 {
    random.long(schedule).max(SHORTEST_LONG)
}

impl Shared {
    /// The triggers to wait for; those that do not run yet are started.
    fn triggers(&mut self, schedule: &Schedule, random: &mut Random) -> Vec<libc::pollfd> {
        let mut fds = Vec::new();
        for trigger in self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.trigger.as_mut())
        {
            if trigger.start(long(schedule, random)).is_err() {
                trigger.end();
            }
            fds.extend(trigger.fd().map(ready_to_read));
        }
        fds
    }

    /// Arms the slot whose trigger is ready, if it has expired: its thread was just interrupted in its own code, here.
    fn arm_triggered(
        &mut self,
        ready: &libc::pollfd,
        cpu: u32,
        schedule: &Schedule,
        random: &mut Random,
    ) {
        let made = &mut self.made;
        let is_ready = |slot: &Slot| slot.trigger.as_ref().and_then(Trigger::fd) == Some(ready.fd);
        let Some(slot) = self.slots.iter_mut().find(|slot| is_ready(slot)) else {
            return;
        };
        let Some(trigger) = &mut slot.trigger else {
            return;
        };
        let expired = trigger.expired(long(schedule, random));
        if ready.revents & !libc::POLLIN != 0 || expired.is_err() {
            trigger.end();
        }
        if !expired.unwrap_or(false) {
            return;
        }
        if made.bytes.len() > MOST_WAITING {
            made.stats.held_back += 1;
            return;
        }
        slot.drain(made);
        if slot.is_busy() || slot.rests() {
            made.stats.busy += 1;
            return;
        }
        match (slot.whereabouts(), slot.place) {
            // The thread went to sleep, or to another CPU, before this one ran.
            (Some((false, _)), _) => return,
            (Some((true, other)), EventTarget::Thread(tid, _)) if other != cpu => {
                self.elsewhere.push((tid, other));
                return;
            }
            _ => {}
        }
        if slot.arm(schedule, random, true).is_err() {
            made.stats.refused += 1;
        }
    }

    /// Arms the next slot without a trigger whose burst before is over and whose thread runs here, or waits for its turn to. One that
    /// sleeps is left alone: it would begin where it wakes up, which is never a place of chance.
    fn arm_next(&mut self, cpu: u32, schedule: &Schedule, random: &mut Random) {
        if self.made.bytes.len() > MOST_WAITING {
            self.made.stats.held_back += 1;
            return;
        }
        let count = self.slots.len();
        let mut busy = false;
        for _ in 0..count.min(SLOTS_LOOKED_AT) {
            self.turn = (self.turn + 1) % count;
            let slot = &mut self.slots[self.turn];
            if slot.trigger.is_some() {
                continue;
            }
            slot.drain(&mut self.made);
            if slot.is_busy() || slot.rests() {
                busy = true;
                continue;
            }
            let found = slot.whereabouts();
            match (found, slot.place) {
                (Some((false, _)), _) => continue,
                (Some((true, other)), EventTarget::Thread(tid, _)) if other != cpu => {
                    self.elsewhere.push((tid, other));
                    continue;
                }
                _ => {}
            }
            if slot.arm(schedule, random, found.is_some()).is_err() {
                self.made.stats.refused += 1;
            }
            return;
        }
        self.made.stats.busy += u64::from(busy);
    }

    /// Takes in what all slots have.
    pub fn drain(&mut self) {
        let now = sys::clock_now(libc::CLOCK_MONOTONIC);
        for slot in &mut self.slots {
            slot.drain(&mut self.made);
            slot.give_up_if_stuck(now, &mut self.made);
        }
    }

    /// Removes the slot that `is` the one, whose burst is cut.
    pub fn remove(&mut self, is: impl Fn(&Slot) -> bool) -> Option<Slot> {
        let index = self.slots.iter().position(is)?;
        Some(self.slots.remove(index))
    }
}
