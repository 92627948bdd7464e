//! Waiting for records, for the end of threads, and for CPUs that come and go.

use crate::attach::{self, Arrangement, Attachment};
use crate::cpus::CpuSet;
use crate::delivery::Delivery;
use crate::listener::RecordListener;
use crate::notes::{AttachNote, CpuChange};
use crate::spec::{Reader, SessionSpec, Target};
use crate::stop::StopHandle;
use crate::sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The waiting part of a session: `poll(2)` on the ring owners, on watched processes and on the session's stop.
#[derive(Debug)]
pub(crate) struct FdPollReader {
    fds: Vec<libc::pollfd>,
    mode: Reader,
    /// Become readable when a watched process ends.
    processes: Vec<OwnedFd>,
    /// Whether the session's targets can end.
    can_end: bool,
    /// When threads were last looked at.
    threads_checked: Instant,
    /// When the CPUs were last looked at.
    cpus_checked: Instant,
    /// A watched process has ended: look at the threads at once.
    process_ended: bool,
    ended: bool,
    /// CPUs that were online at the last look.
    online: CpuSet,
}

/// Time between two looks at the threads.
const THREADS_EVERY: Duration = Duration::from_millis(100);
/// Time between two looks at the CPUs.
const CPUS_EVERY: Duration = Duration::from_secs(1);

impl FdPollReader {
    pub(crate) fn new() -> FdPollReader {
        let now = Instant::now();
        FdPollReader {
            fds: Vec::new(),
            mode: Reader::FdPoll,
            processes: Vec::new(),
            can_end: false,
            threads_checked: now,
            cpus_checked: now,
            process_ended: false,
            ended: false,
            online: CpuSet::default(),
        }
    }

    /// Waits up to `timeout` until there is something to do, and returns true if a stop may have been asked for.
    /// Whatever the answer, the caller drains every ring: the kernel's readiness is a flag that the first look
    /// consumes, for all descriptors that share a ring.
    ///
    /// # Errors
    /// The kernel's refusal to poll.
    pub(crate) fn wait(
        &mut self,
        timeout: Duration,
        attachment: &mut Attachment,
        stop: &StopHandle,
        wake: &[BorrowedFd<'_>],
    ) -> io::Result<bool> {
        let entry = |fd: BorrowedFd<'_>| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        self.fds.clear();
        self.fds.push(entry(stop.fd()));
        self.fds.extend(wake.iter().map(|fd| entry(*fd)));
        let processes = self.fds.len();
        self.fds
            .extend(self.processes.iter().map(|fd| entry(fd.as_fd())));
        let rings = self.fds.len();
        // A negative descriptor is skipped, and keeps the order.
        self.fds.extend(attachment.rings.iter().map(|ring| {
            let mut entry = entry(ring.owner.as_fd());
            if ring.hung_up || self.mode == Reader::Interval {
                entry.fd = -1;
            }
            entry
        }));
        sys::poll(&mut self.fds, timeout)?;
        let is_stopped = self.fds[0].revents != 0;
        for (ring, fd) in attachment.rings.iter_mut().zip(&self.fds[rings..]) {
            if fd.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0 {
                // The descriptor would be ready for ever. Its ring is still drained.
                ring.hung_up = true;
                attachment.rings_generation += 1;
            }
        }
        let ended: Vec<bool> = self.fds[processes..rings]
            .iter()
            .map(|fd| fd.revents != 0)
            .collect();
        if ended.contains(&true) {
            self.process_ended = true;
            let mut ended = ended.into_iter();
            self.processes.retain(|_| !ended.next().unwrap_or(false));
        }
        Ok(is_stopped)
    }

    /// Prepares for the events of `attachment`.
    pub(crate) fn watch(&mut self, spec: &SessionSpec, attachment: &Attachment) {
        *self = FdPollReader::new();
        self.mode = spec.reader;
        self.online = CpuSet::new(attachment.rings.iter().map(|ring| ring.cpu));
        let pids: &[u32] = match &spec.target {
            Target::Processes(pids) => pids,
            Target::Command(pid) => std::slice::from_ref(pid),
            _ => &[],
        };
        // Without pidfds, before Linux 5.3, the end is seen a little later.
        self.processes = pids
            .iter()
            .filter_map(|pid| sys::pidfd_open(*pid).ok())
            .collect();
        self.can_end = !spec.target.is_cpu_wide() && spec.target != Target::SelfProcess;
    }

    /// Returns true if every watched thread has ended.
    pub(crate) fn all_ended(&self) -> bool {
        self.ended
    }

    /// Returns the watched threads that have ended together with all that inherited their events; `None` where it was
    /// not yet time to look. Looking consumes the rings' readiness, so the caller drains them afterwards: the next round.
    pub(crate) fn ended_threads(
        &mut self,
        attachment: &Attachment,
    ) -> io::Result<Option<Vec<u32>>> {
        let due = self.threads_checked.elapsed() >= THREADS_EVERY;
        if attachment.threads.is_empty() || !(due || self.process_ended) {
            return Ok(None);
        }
        self.threads_checked = Instant::now();
        self.process_ended = false;
        let first = |placed: &attach::Placed| {
            placed
                .events
                .first()
                .map(|(_, event)| event.as_fd().as_raw_fd())
        };
        let watched: Vec<(u32, i32)> = attachment
            .threads
            .iter()
            .filter_map(|(tid, placed)| Some((*tid, first(placed)?)))
            .collect();
        self.fds.clear();
        self.fds.extend(watched.iter().map(|(_, fd)| libc::pollfd {
            fd: *fd,
            events: 0,
            revents: 0,
        }));
        sys::poll(&mut self.fds, Duration::ZERO)?;
        let ended: Vec<u32> = watched
            .iter()
            .zip(&self.fds)
            .filter(|(_, fd)| fd.revents & libc::POLLHUP != 0)
            .map(|((tid, _), _)| *tid)
            .collect();
        self.ended = self.can_end && ended.len() == attachment.threads.len();
        Ok(Some(ended))
    }

    /// Looks at the CPUs about once a second: notes those that went, and opens those again that came back.
    pub(crate) fn follow_cpus(
        &mut self,
        spec: &SessionSpec,
        attachment: &mut Attachment,
        delivery: &mut Delivery,
        listener: &mut dyn RecordListener,
    ) {
        // Rings of threads are on no CPU, and go wherever the threads go.
        let of_cpus = matches!(attachment.shape, Arrangement::PerCore | Arrangement::PerCpu);
        if !of_cpus || self.cpus_checked.elapsed() < CPUS_EVERY {
            return;
        }
        self.cpus_checked = Instant::now();
        let online = CpuSet::online();
        if online == self.online {
            return;
        }
        let wide = spec.target.is_cpu_wide();
        for cpu in self.online.iter().filter(|cpu| !online.contains(*cpu)) {
            let change = if wide {
                CpuChange::OfflineUntilReopened
            } else {
                CpuChange::Offline
            };
            attachment.note(AttachNote::Cpu { cpu, change });
        }
        let wanted = attach::wanted_cpus(spec, &online);
        for cpu in wanted.iter().filter(|cpu| !self.online.contains(*cpu)) {
            if !wide {
                if !attachment.rings.iter().any(|ring| ring.cpu == cpu) {
                    let change = CpuChange::OnlineUnwatched;
                    attachment.note(AttachNote::Cpu { cpu, change });
                }
                continue;
            }
            // Events of a CPU that was offline never count again.
            delivery.last_of(attachment, |ring| ring.cpu == cpu, listener);
            attachment.forget_ring(cpu);
            let change = match attachment.reopen_cpu(cpu, spec) {
                Ok(()) => CpuChange::Online,
                Err(error) => CpuChange::OnlineRefused {
                    because: error.to_string(),
                },
            };
            attachment.note(AttachNote::Cpu { cpu, change });
            delivery.learn_ids(attachment);
        }
        self.online = online;
    }
}
