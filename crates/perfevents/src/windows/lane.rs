//! A CPU's thread that arms the events of what runs there, when a burst is due.
//!
//! It is bound to its CPU, so that whoever ran there is interrupted anyway and arming its events takes a microsecond;
//! from another CPU it would take an interrupt, and in a virtual machine some sixty. What it interrupted goes on when
//! it sleeps again, and its burst begins.

use super::random::Random;
use super::schedule::Schedule;
use super::slot::{Made, Slot};
use crate::event::Place;
use crate::sys;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of records that may wait: then nobody takes them in, and no more are made.
const MOST_WAITING: usize = 8 << 20;

/// How many slots are looked at when a burst is due, until one is found whose thread runs and that is not busy.
const SLOTS_LOOKED_AT: usize = 16;

/// What a lane's thread and its owner share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub slots: Vec<Slot>,
    turn: usize,
    pub made: Made,
    pub running: bool,
    quit: bool,
    /// Threads that were found to run on other CPUs.
    pub elsewhere: Vec<(u32, u32)>,
    /// Whether the thread got a real-time priority; unknown until it has begun.
    pub prompt: Option<bool>,
}

/// A CPU's arming thread.
#[derive(Debug)]
pub(super) struct Lane {
    pub cpu: u32,
    shared: Arc<(Mutex<Shared>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Lane {
    /// Starts the thread; it does nothing before [`Lane::set_running`] and without slots.
    ///
    /// # Errors
    /// Of starting the thread.
    pub fn start(cpu: u32, schedule: Schedule) -> io::Result<Lane> {
        let shared = Arc::new((Mutex::new(Shared::default()), Condvar::new()));
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("windows/{cpu}"))
            .spawn(move || arm_when_due(cpu, &schedule, &of_thread))?;
        Ok(Lane {
            cpu,
            shared,
            thread: Some(thread),
        })
    }

    pub fn lock(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared.0)
    }

    /// Lets bursts be armed, or no more.
    pub fn set_running(&self, running: bool) {
        self.lock().running = running;
        self.shared.1.notify_all();
    }

    /// Adds a slot, whose turn comes.
    pub fn add(&self, slot: Slot) {
        self.lock().slots.push(slot);
        self.shared.1.notify_all();
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.lock().quit = true;
        self.shared.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // What a panic left is still whole: each change is made in one go.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn arm_when_due(cpu: u32, schedule: &Schedule, shared: &(Mutex<Shared>, Condvar)) {
    // An offline CPU: from wherever the thread runs then, which takes longer.
    let _ = sys::pin_to(cpu);
    let prompt = sys::become_prompt().is_ok();
    let seed = sys::clock_now(libc::CLOCK_MONOTONIC) ^ (u64::from(cpu) << 48);
    let mut random = Random::new(seed);
    let (mutex, changed) = shared;
    let mut state = lock(mutex);
    state.prompt = Some(prompt);
    let mut due = None;
    while !state.quit {
        if !state.running || state.slots.is_empty() {
            due = None;
            state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let now = Instant::now();
        let next = *due.get_or_insert_with(|| now + wait(schedule, &mut random));
        if now < next {
            let waited = changed.wait_timeout(state, next - now);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            continue;
        }
        state.arm_next(cpu, schedule, &mut random);
        // From the time it was due: delays do not add up. Long ones are not made up for.
        let after = next + wait(schedule, &mut random);
        due = Some(after.max(now));
    }
}

fn wait(schedule: &Schedule, random: &mut Random) -> Duration {
    Duration::from_nanos(random.long(schedule))
}

impl Shared {
    /// Arms the next slot whose burst before is over and whose thread runs here, or waits for its turn to. One that
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
            slot.drain(&mut self.made);
            if slot.is_busy() {
                busy = true;
                continue;
            }
            let found = slot.whereabouts();
            match (found, slot.place) {
                (Some((false, _)), _) => continue,
                (Some((true, other)), Place::Thread(tid, _)) if other != cpu => {
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
