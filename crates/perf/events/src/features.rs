//! Options that this kernel's attr has, found out by trying: one dummy event per option, once per process.

use crate::event::{EventTarget, OpenRequest};
use crate::names::software;
use crate::{Attr, AttrFlags, ReadFormat, SampleType, event_type};
use std::sync::OnceLock;

/// Options of newer kernels, as far as this kernel and user may use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Features {
    /// The flags among [`Features::OPTIONAL`] that are accepted.
    pub flags: AttrFlags,
    /// [`ReadFormat::LOST`] (Linux 6.0).
    pub read_lost: bool,
    /// Inherited events with counter values in samples (before 4.13, and from 6.12).
    pub inherit_read: bool,
    /// Inherited events with the counter values of whole groups in samples (from 6.12).
    pub inherit_group_read: bool,
}

impl Features {
    /// Flags that not every kernel knows.
    pub const OPTIONAL: AttrFlags = AttrFlags::MMAP2
        .union(AttrFlags::COMM_EXEC)
        .union(AttrFlags::USE_CLOCKID)
        .union(AttrFlags::CONTEXT_SWITCH)
        .union(AttrFlags::NAMESPACES)
        .union(AttrFlags::KSYMBOL)
        .union(AttrFlags::BPF_EVENT)
        .union(AttrFlags::CGROUP)
        .union(AttrFlags::TEXT_POKE)
        .union(AttrFlags::BUILD_ID)
        .union(AttrFlags::INHERIT_THREAD)
        .union(AttrFlags::REMOVE_ON_EXEC)
        .union(AttrFlags::SIGTRAP);

    /// Returns the features of this kernel for this process. The first call tries them out; where not even a dummy event
    /// opens, everything is taken as accepted, so that the real event's refusal is what the user reads.
    pub fn get() -> Features {
        static FEATURES: OnceLock<Features> = OnceLock::new();
        *FEATURES.get_or_init(Features::probe)
    }

    fn probe() -> Features {
        if !opens(&dummy()) {
            return Features {
                flags: Features::OPTIONAL,
                read_lost: true,
                inherit_read: true,
                inherit_group_read: true,
            };
        }
        let mut flags = AttrFlags::empty();
        for flag in Features::OPTIONAL.iter() {
            let mut attr = dummy();
            attr.flags |= flag;
            // Some flags are only accepted beside another.
            if flag == AttrFlags::MMAP2 || flag == AttrFlags::BUILD_ID {
                attr.flags |= AttrFlags::MMAP | AttrFlags::MMAP2;
            }
            if flag == AttrFlags::COMM_EXEC {
                attr.flags |= AttrFlags::COMM;
            }
            if flag == AttrFlags::INHERIT_THREAD {
                attr.flags |= AttrFlags::INHERIT;
            }
            if flag == AttrFlags::SIGTRAP {
                attr.flags |= AttrFlags::REMOVE_ON_EXEC;
            }
            if flag == AttrFlags::USE_CLOCKID {
                attr.clockid = libc::CLOCK_MONOTONIC;
            }
            if opens(&attr) {
                flags |= flag;
            }
        }
        let mut lost = dummy();
        lost.read_format = ReadFormat::LOST;
        let mut read = dummy();
        read.flags |= AttrFlags::INHERIT;
        read.sample_type = SampleType::READ | SampleType::TID;
        read.sample_period = 1;
        let inherit_read = opens(&read);
        read.read_format = ReadFormat::GROUP;
        Features {
            flags,
            read_lost: opens(&lost),
            inherit_read,
            inherit_group_read: opens(&read),
        }
    }
}

/// Returns a disabled event that counts nothing and that every user may open.
pub(crate) fn dummy() -> Attr {
    Attr {
        kind: event_type::SOFTWARE,
        config: software::DUMMY,
        flags: AttrFlags::DISABLED | AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV,
        ..Attr::default()
    }
}

fn opens(attr: &Attr) -> bool {
    OpenRequest::with_attr("dummy", attr.clone(), EventTarget::CALLER)
        .call()
        .is_ok()
}
