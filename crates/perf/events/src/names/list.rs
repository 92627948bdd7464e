//! All events of this machine, with whether they work.

use super::pmu::PmuDirectory;
use super::unavailable::Unavailable;
use super::{hardware, software, tracepoint};
use crate::errors::Refusal;
use crate::event::{EventTarget, OpenRequest};
use crate::{Attr, AttrFlags, event_type};
use std::fmt;

/// The kind of event that a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum EventKind {
    /// Counted by the CPU, named by the kernel for every CPU.
    Hardware,
    /// An event of a cache.
    Cache,
    /// Counted by the kernel.
    Software,
    /// An event of a PMU in sysfs.
    Pmu,
    /// A tracepoint.
    Tracepoint,
    /// A form for events that have no names: raw numbers, breakpoints, uprobes.
    Form,
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EventKind::Hardware => "hardware",
            EventKind::Cache => "cache",
            EventKind::Software => "software",
            EventKind::Pmu => "pmu",
            EventKind::Tracepoint => "tracepoint",
            EventKind::Form => "form",
        })
    }
}

/// One event to type.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListedEvent {
    /// The name to type.
    pub name: String,
    /// Other names for it.
    pub aliases: Vec<String>,
    /// Its kind.
    pub kind: EventKind,
    /// The thing that is counted; empty where the kernel does not say.
    pub description: String,
    /// Success if the event opens here and now, otherwise the reason of the refusal.
    pub works: Result<(), Unavailable>,
}

/// Lists every event that this machine's kernel names: hardware, caches, software, PMUs, tracepoints, and the forms for the
/// rest. Each is opened once to see whether it works, but tracepoints, of which one stands for all.
pub fn list_events() -> Vec<ListedEvent> {
    let mut list = Vec::new();
    let mut add = |names: &[&str], kind, attr: Attr, description: &str| {
        let (name, aliases) = names
            .split_first()
            .map_or(("", &[][..]), |(name, rest)| (*name, rest));
        list.push(ListedEvent {
            name: name.to_owned(),
            aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(),
            kind,
            description: description.to_owned(),
            works: works(name, &attr, false),
        });
    };
    let attr = |kind, config| Attr {
        kind,
        config,
        ..Attr::default()
    };
    for event in hardware::EVENTS {
        let attr = attr(event_type::HARDWARE, event.config);
        add(event.names, EventKind::Hardware, attr, event.description);
    }
    for (name, config) in hardware::cache_events() {
        add(
            &[&name],
            EventKind::Cache,
            attr(event_type::HW_CACHE, config),
            "",
        );
    }
    for event in software::EVENTS {
        let attr = attr(event_type::SOFTWARE, event.config);
        add(event.names, EventKind::Software, attr, event.description);
    }
    list.extend(pmu_events(&PmuDirectory::default()));
    list.extend(tracepoints());
    list.extend(forms());
    list
}

/// Opens an event, counting only user space where the kernel is refused, and closes it again.
fn works(name: &str, attr: &Attr, wide: bool) -> Result<(), Unavailable> {
    let target = if wide {
        EventTarget::Cpu(0)
    } else {
        EventTarget::Thread(0, None)
    };
    let mut attr = attr.clone();
    attr.flags |= AttrFlags::DISABLED;
    let mut result = OpenRequest::with_attr(name, attr.clone(), target).open();
    if let Err(error) = &result
        && matches!(
            error.refusal,
            Refusal::Permission {
                needs_kernel: true,
                ..
            }
        )
        && !wide
    {
        attr.flags |= AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
        result = OpenRequest::with_attr(name, attr.clone(), target).open();
    }
    Ok(result.map(drop)?)
}

fn pmu_events(directory: &PmuDirectory) -> Vec<ListedEvent> {
    let mut list = Vec::new();
    for pmu in directory.names() {
        let Some(kind) = directory.kind(&pmu) else {
            continue;
        };
        let wide = directory.cpumask(&pmu).is_some();
        for event in directory.events(&pmu) {
            let mut attr = Attr {
                kind,
                ..Attr::default()
            };
            let works = match directory.set_term(&mut attr, &pmu, &event, None) {
                Ok(()) => works(&event, &attr, wide),
                Err(error) => Err(error.into()),
            };
            list.push(ListedEvent {
                name: format!("{pmu}/{event}/"),
                aliases: Vec::new(),
                kind: EventKind::Pmu,
                description: if wide {
                    "counts for whole CPUs only".to_owned()
                } else {
                    String::new()
                },
                works,
            });
        }
    }
    list
}

fn tracepoints() -> Vec<ListedEvent> {
    let names = tracepoint::all();
    let first = names.first().and_then(|name| name.split_once(':'));
    let answer = match first.map(|(system, name)| tracepoint::config(system, name)) {
        Some(Ok(config)) => {
            let attr = Attr {
                kind: event_type::TRACEPOINT,
                config,
                ..Attr::default()
            };
            works("tracepoint", &attr, false)
        }
        Some(Err(error)) => Err(Unavailable::of_tracefs(&error)),
        None => Ok(()),
    };
    let listed = |name| ListedEvent {
        name,
        aliases: Vec::new(),
        kind: EventKind::Tracepoint,
        description: String::new(),
        works: answer.clone(),
    };
    let mut list: Vec<ListedEvent> = names.into_iter().map(listed).collect();
    if list.is_empty() {
        let why = match tracepoint::directory() {
            Err(error) => Unavailable::of_tracefs(&error),
            Ok(_) => Unavailable::NoTracefs,
        };
        list.push(ListedEvent {
            name: "SYSTEM:NAME".to_owned(),
            aliases: Vec::new(),
            kind: EventKind::Tracepoint,
            description: "a tracepoint".to_owned(),
            works: Err(why),
        });
    }
    list
}

fn forms() -> Vec<ListedEvent> {
    let raw = Attr {
        kind: event_type::RAW,
        ..Attr::default()
    };
    let word = 0_u64;
    let breakpoint = Attr {
        kind: event_type::BREAKPOINT,
        bp_type: 3,
        config1: (&raw const word) as u64,
        config2: 8,
        ..Attr::default()
    };
    let form = |name: &str, description: &str, works| ListedEvent {
        name: name.to_owned(),
        aliases: Vec::new(),
        kind: EventKind::Form,
        description: description.to_owned(),
        works,
    };
    let uprobe = match super::pmu::kind("uprobe") {
        None => Err(Unavailable::NoUprobes),
        Some(_) if !privileged() => Err(Unavailable::UprobesDenied),
        Some(_) => Ok(()),
    };
    vec![
        form(
            "rHEX",
            "a raw event of the CPU, by number",
            works("raw", &raw, false),
        ),
        form(
            "mem:ADDRESS[/LENGTH][:rwx]",
            "accesses to an address, by a hardware breakpoint",
            works("breakpoint", &breakpoint, false),
        ),
        form(
            "uprobe:FILE+OFFSET",
            "calls of an instruction, by its target in the file",
            uprobe.clone(),
        ),
        form(
            "uretprobe:FILE+OFFSET",
            "returns from a function, by its target in the file",
            uprobe,
        ),
    ]
}

/// CAP_SYS_ADMIN or CAP_PERFMON.
fn privileged() -> bool {
    crate::limits::effective_capabilities()
        .is_some_and(|bits| bits >> 21 & 1 != 0 || bits >> 38 & 1 != 0)
}
