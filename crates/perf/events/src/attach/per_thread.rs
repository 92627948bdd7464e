//! Fewer descriptors for less coverage: each event once per thread, on whichever CPU it runs, with a ring per thread.

use super::per_core::{is_about_the_thread, list, named_by_events, resolve};
use super::state::{Attachment, FailedThread};
use super::{Arrangement, Attach, AttachmentStrategy};
use crate::errors::AttachError;
use crate::notes::AttachNote;
use crate::spec::{SessionSpec, Target};

/// Opens each event once per thread. On a machine of many CPUs this takes a fraction of the descriptors of
/// [`PerCoreAttachmentStrategy`](super::PerCoreAttachmentStrategy), but nothing is inherited: threads created later
/// are found by looking ten times a second, and those that live shorter are missed.
#[derive(Clone, Copy, Debug, Default)]
pub struct PerThreadAttachmentStrategy;

/// Data pages of a thread's ring at most: there may be thousands.
const MOST_PAGES: usize = 16;

impl AttachmentStrategy for PerThreadAttachmentStrategy {
    fn name(&self) -> &'static str {
        "per thread"
    }
}

impl Attach for PerThreadAttachmentStrategy {
    fn shape(&self) -> Arrangement {
        Arrangement::PerThread
    }

    fn attach(&self, spec: &SessionSpec, attachment: &mut Attachment) -> Result<(), AttachError> {
        if spec.target.is_cpu_wide() {
            return Err(AttachError::Strategy {
                strategy: "attaching per thread",
                what: "watch whole CPUs or a cgroup",
                remedy: "name processes or threads",
            });
        }
        attachment.ring_pages = attachment.ring_pages.min(MOST_PAGES);
        resolve(spec, attachment)?;
        let mut wanted = list(spec, attachment.reader)?;
        wanted.extend(named_by_events(attachment));
        let each = attachment.plan.events.len() as u64;
        attachment.reserve(wanted.len() as u64 * each, (wanted.len(), 0))?;
        attachment.note(AttachNote::PerThread);
        for _ in 0..spec.attach_iterations.max(1) {
            attachment.summary.iterations += 1;
            if rescan(spec, attachment)? == 0 {
                break;
            }
        }
        if attachment.threads.is_empty() && spec.target != Target::SelfProcess {
            return Err(AttachError::AllEnded);
        }
        Ok(())
    }
}

/// Attaches to the target's threads that are not attached to; how many.
///
/// # Errors
/// A refusal that is not about a single thread.
pub(crate) fn rescan(
    spec: &SessionSpec,
    attachment: &mut Attachment,
) -> Result<usize, AttachError> {
    let listed = list(spec, attachment.reader)?;
    let mut new: Vec<(u32, bool)> = listed.iter().map(|tid| (*tid, true)).collect();
    let named = named_by_events(attachment);
    new.extend(
        named
            .iter()
            .filter(|tid| !listed.contains(tid))
            .map(|tid| (*tid, false)),
    );
    let failed = |tid: u32| {
        attachment
            .summary
            .failed
            .iter()
            .any(|failed| failed.tid == tid)
    };
    new.retain(|(tid, _)| !attachment.threads.contains_key(tid) && !failed(*tid));
    let mut added = 0;
    for (tid, listed) in new {
        let result = match attachment.shape {
            Arrangement::Signals => attachment.add_thread_without_ring(tid, listed),
            _ => attachment.add_thread_with_ring(tid, listed, spec),
        };
        match result {
            Ok(()) => {
                added += 1;
                if attachment.running {
                    attachment.enable_groups_of(tid)?;
                }
            }
            Err(AttachError::Open(error)) if error.is_gone() => {}
            Err(AttachError::Open(error)) if is_about_the_thread(&error) => {
                attachment.summary.failed.push(FailedThread {
                    tid,
                    reason: error.to_string(),
                });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(added)
}
