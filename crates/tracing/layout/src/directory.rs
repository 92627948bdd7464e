//! Names of the files of a trace, and the table of functions.

/// The file with the facts about the recording.
pub const INFO: &str = "info.json";
/// The file with the events beside the calls.
pub const JOURNAL: &str = "journal.jsonl";
/// The file with the table of functions.
pub const FUNCTIONS: &str = "functions";
/// The file with the names of library calls.
pub const NAMES: &str = "names";
/// The file with the calls.
pub const RECORDS: &str = "records";
/// The file with the threads' context switches.
pub const SWITCHES: &str = "switches";
/// The default name of the directory.
pub const DEFAULT: &str = "dioptra.trace";

/// The kind of thing that a function id stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FunctionKind {
    /// Nothing: id 0, ids of a block that were not used, and the multiples of 65536.
    None = 0,
    /// A function of a module: `place` is its *file offset* in the module, `size` its size in bytes (0: not known).
    Function = 1,
    /// A call of another module's function through the module's table of addresses: `place` is where the function's
    /// name begins in the file `names`, `size` the name's length in bytes.
    LibraryCall = 2,
    /// Code that belongs to no module: `place` is its absolute address, `module` the number of the process in the
    /// journal.
    Address = 3,
    /// Something that the kernel did with the thread. Files never contain it: readers add such entries behind the
    /// table's to show events as calls. `place` is an [`EventPlace`].
    Event = 4,
}

/// The event that an entry of the kind [`FunctionKind::Event`] stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EventPlace {
    /// The thread had no CPU because it waited.
    Schedule = 0,
    /// The thread had no CPU, though it could have gone on.
    SchedulePreempted = 1,
    /// The thread had no CPU because it waited until the recorder had written the records that filled the tracer's
    /// memory.
    ScheduleTracer = 2,
    /// The thread was made.
    TaskNew = 3,
    /// The thread ended.
    TaskExit = 4,
    /// The thread got a name. Each name has an entry of its own; `size` is the name's number.
    TaskName = 5,
}

impl EventPlace {
    /// Returns the event's name, as uftrace's users know it.
    pub fn name(self) -> &'static str {
        match self {
            EventPlace::Schedule => "linux:schedule",
            EventPlace::SchedulePreempted => "linux:schedule (pre-empted)",
            EventPlace::ScheduleTracer => "linux:schedule (tracer)",
            EventPlace::TaskNew => "linux:task-new",
            EventPlace::TaskExit => "linux:task-exit",
            EventPlace::TaskName => "linux:task-name",
        }
    }
}

/// The size of an entry in bytes.
pub const FUNCTION_ENTRY_SIZE: usize = 24;

/// An entry of the table of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionEntry {
    /// The module's number in the journal.
    pub module: u32,
    /// The kind of the entry.
    pub kind: FunctionKind,
    /// The [`Method`](crate::message::Method) by which calls of the function are found.
    pub method: u8,
    /// The position of the function, of its name, or the event; see [`FunctionKind`].
    pub place: u64,
    /// The size in bytes of the function or its name, or a name's number; see [`FunctionKind`].
    pub size: u32,
}

impl FunctionEntry {
    /// The entry of id 0.
    pub const NONE: FunctionEntry = FunctionEntry {
        module: 0,
        kind: FunctionKind::None,
        method: 0,
        place: 0,
        size: 0,
    };

    /// Returns the entry of an event.
    pub const fn event(event: EventPlace) -> FunctionEntry {
        FunctionEntry {
            kind: FunctionKind::Event,
            place: event as u64,
            ..FunctionEntry::NONE
        }
    }

    /// Returns the event of an entry of the kind [`FunctionKind::Event`]; `None` for other kinds.
    pub fn as_event(&self) -> Option<EventPlace> {
        match (self.kind, self.place) {
            (FunctionKind::Event, 0) => Some(EventPlace::Schedule),
            (FunctionKind::Event, 1) => Some(EventPlace::SchedulePreempted),
            (FunctionKind::Event, 2) => Some(EventPlace::ScheduleTracer),
            (FunctionKind::Event, 3) => Some(EventPlace::TaskNew),
            (FunctionKind::Event, 4) => Some(EventPlace::TaskExit),
            (FunctionKind::Event, _) => Some(EventPlace::TaskName),
            _ => None,
        }
    }

    /// Returns the entry's bytes.
    pub fn to_bytes(&self) -> [u8; FUNCTION_ENTRY_SIZE] {
        let mut bytes = [0; FUNCTION_ENTRY_SIZE];
        bytes[..4].copy_from_slice(&self.module.to_le_bytes());
        bytes[4] = self.kind as u8;
        bytes[5] = self.method;
        bytes[8..16].copy_from_slice(&self.place.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.size.to_le_bytes());
        bytes
    }

    /// Returns the entry in these bytes. An unknown kind becomes [`FunctionKind::None`].
    pub fn from_bytes(bytes: &[u8; FUNCTION_ENTRY_SIZE]) -> FunctionEntry {
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        FunctionEntry {
            module: u32_at(0),
            kind: match bytes[4] {
                1 => FunctionKind::Function,
                2 => FunctionKind::LibraryCall,
                3 => FunctionKind::Address,
                _ => FunctionKind::None,
            },
            method: bytes[5],
            place: u64::from(u32_at(8)) | u64::from(u32_at(12)) << 32,
            size: u32_at(16),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let entry = FunctionEntry {
            module: 7,
            kind: FunctionKind::LibraryCall,
            method: 2,
            place: 1 << 40 | 5,
            size: 9,
        };
        assert_eq!(FunctionEntry::from_bytes(&entry.to_bytes()), entry);
        assert_eq!(
            FunctionEntry::from_bytes(&[0; FUNCTION_ENTRY_SIZE]),
            FunctionEntry::NONE
        );
    }
}
