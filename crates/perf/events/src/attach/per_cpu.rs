//! The strategy for whole CPUs and cgroups: each event once per CPU.

use super::state::Attachment;
use super::{Arrangement, Attach, AttachmentStrategy};
use crate::cpus::CpuSet;
use crate::errors::{AttachError, OpenError, Refusal};
use crate::event::EventTarget;
use crate::notes::{AttachNote, CpuChange};
use crate::spec::{SessionSpec, Start, Target};
use crate::sys;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Opens each event for all threads of each CPU, or for those of a cgroup. The ring owners watch the whole CPU too
/// and report mappings, names and threads from the start; nothing is inherited, so threads cost nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct PerCpuAttachmentStrategy;

impl AttachmentStrategy for PerCpuAttachmentStrategy {
    fn name(&self) -> &'static str {
        "per CPU"
    }
}

impl Attach for PerCpuAttachmentStrategy {
    fn shape(&self) -> Arrangement {
        Arrangement::PerCpu
    }

    fn attach(&self, spec: &SessionSpec, attachment: &mut Attachment) -> Result<(), AttachError> {
        let online = CpuSet::online();
        let cpus = wanted_cpus(spec, &online);
        if cpus.is_empty() {
            let wanted = match (&spec.target, &spec.cpus) {
                (
                    Target::Cpus(Some(set))
                    | Target::Cgroup {
                        cpus: Some(set), ..
                    },
                    _,
                )
                | (_, Some(set)) => set.to_string(),
                _ => String::new(),
            };
            return Err(AttachError::NoCpus {
                wanted,
                online: online.to_string(),
            });
        }
        if let Target::Cgroup { path, .. } = &spec.target {
            attachment.cgroup = Some(open_cgroup(path)?.into());
        }
        let events = attachment.plan.events.len() as u64 + 1;
        attachment.reserve(cpus.len() as u64 * events, (0, cpus.len()))?;
        let mut resolved = false;
        for cpu in cpus.iter() {
            match open_cpu(cpu, spec, attachment, &mut resolved) {
                Err(AttachError::Open(OpenError {
                    refusal: Refusal::CpuOffline,
                    ..
                })) if resolved || !CpuSet::online().contains(cpu) => {
                    attachment.forget_ring(cpu);
                    attachment.note(AttachNote::Cpu {
                        cpu,
                        change: CpuChange::OfflineUntilReopened,
                    });
                }
                other => other?,
            }
        }
        if attachment.rings.is_empty() {
            return Err(AttachError::NoCpus {
                wanted: cpus.to_string(),
                online: CpuSet::online().to_string(),
            });
        }
        if spec.start != Start::Manual {
            attachment.enable_late()?;
        }
        Ok(())
    }
}

/// Returns the CPUs that the session is to watch and that are online.
pub(crate) fn wanted_cpus(spec: &SessionSpec, online: &CpuSet) -> CpuSet {
    let mut cpus = online.clone();
    if let Target::Cpus(Some(set))
    | Target::Cgroup {
        cpus: Some(set), ..
    } = &spec.target
    {
        cpus = cpus.intersection(set);
    }
    if let Some(set) = &spec.cpus {
        cpus = cpus.intersection(set);
    }
    cpus
}

/// Makes a CPU's ring and opens its events.
fn open_cpu(
    cpu: u32,
    spec: &SessionSpec,
    attachment: &mut Attachment,
    resolved: &mut bool,
) -> Result<(), AttachError> {
    attachment.add_ring(cpu, spec)?;
    if !*resolved {
        let cgroup = attachment.cgroup.take();
        let place = EventTarget::Cpu(cpu);
        let result =
            attachment
                .plan
                .resolve(place, cgroup.as_ref().map(AsFd::as_fd), spec.fallbacks);
        attachment.cgroup = cgroup;
        for note in attachment.plan.notes.clone() {
            attachment.note(note);
        }
        result?;
        *resolved = true;
    }
    let slot = attachment.rings.len() - 1;
    attachment.add_cpu(slot)
}

impl Attachment {
    /// Closes a CPU's ring and events.
    pub(crate) fn forget_ring(&mut self, cpu: u32) {
        if let Some(placed) = self.cpus.remove(&cpu) {
            self.settle(placed);
        }
        if let Some(slot) = self.rings.iter().position(|ring| ring.cpu == cpu) {
            let ring = self.rings.remove(slot);
            self.rings_generation += 1;
            if let Some(index) = self.plan.owner_event {
                super::state::add_count(&mut self.closed[index], &ring.owner);
            }
        }
        self.summary.cpus.retain(|known| *known != cpu);
    }

    /// Opens a CPU again that has come back online.
    ///
    /// # Errors
    /// As for attaching; the CPU is left out then.
    pub(crate) fn reopen_cpu(&mut self, cpu: u32, spec: &SessionSpec) -> Result<(), AttachError> {
        let result = open_cpu(cpu, spec, self, &mut true).and_then(|()| {
            if !self.running {
                return Ok(());
            }
            for (index, event) in self
                .cpus
                .get(&cpu)
                .map(|placed| &placed.events)
                .into_iter()
                .flatten()
            {
                let planned = &self.plan.events[*index];
                if planned.leads.is_some() && planned.starts_late() {
                    event.enable()?;
                }
            }
            Ok(())
        });
        if result.is_err() {
            self.forget_ring(cpu);
        }
        result
    }
}

/// Opens a cgroup's directory, by absolute path or by its name below the hierarchy that serves events.
pub(crate) fn open_cgroup(path: &Path) -> Result<File, AttachError> {
    let failed = |source| AttachError::Cgroup {
        path: path.to_owned(),
        source,
    };
    let mounts = sys::read_file("/proc/mounts").map_err(failed)?;
    let root = hierarchy(&mounts).ok_or_else(|| {
        failed(std::io::Error::new(
            std::io::ErrorKind::NotFound,
            "no hierarchy of cgroups is mounted that serves events (cgroup2, or cgroup with perf_event)",
        ))
    })?;
    let relative = path.strip_prefix("/").unwrap_or(path);
    // A cgroup of another hierarchy, such as cgroup v1's cpu, has no events of its own.
    let directory = if path.starts_with(&root) {
        path.to_owned()
    } else {
        root.join(relative)
    };
    if directory.join("cgroup.procs").exists() {
        File::open(&directory).map_err(failed)
    } else {
        Err(failed(std::io::Error::new(
            std::io::ErrorKind::NotFound,
            format!("there is no cgroup {}", directory.display()),
        )))
    }
}

/// Returns the mount point of the hierarchy that serves events: cgroup v1's with the controller perf_event where there is one,
/// otherwise the unified one.
fn hierarchy(mounts: &str) -> Option<PathBuf> {
    let mut unified = None;
    for line in mounts.lines() {
        let mut words = line.split_whitespace().skip(1);
        let (Some(place), Some(kind), Some(options)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        if kind == "cgroup" && options.split(',').any(|option| option == "perf_event") {
            return Some(PathBuf::from(place));
        }
        if kind == "cgroup2" && unified.is_none() {
            unified = Some(PathBuf::from(place));
        }
    }
    unified
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_that_serves_events_is_found() {
        let v2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        assert_eq!(hierarchy(v2), Some(PathBuf::from("/sys/fs/cgroup")));
        let hybrid = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(
            hierarchy(hybrid),
            Some(PathBuf::from("/sys/fs/cgroup/unified"))
        );
        let v1 = format!("{hybrid}cgroup /sys/fs/cgroup/perf_event cgroup rw,perf_event 0 0\n");
        assert_eq!(
            hierarchy(&v1),
            Some(PathBuf::from("/sys/fs/cgroup/perf_event"))
        );
        assert_eq!(hierarchy("proc /proc proc rw 0 0\n"), None);
    }
}
