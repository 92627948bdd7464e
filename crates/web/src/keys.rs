//! Keys by which addresses name the things of a profile. They follow from the recording alone, so they are the same when it
//! is loaded again.

use crate::failure::Failure;
use dioptra_profile::{
    FunctionId, FunctionName, Module, ModuleId, Names, ProcessId, Profile, ProgramId, ThreadId,
};
use hashbrown::HashMap;
use std::fmt::Write as _;
use std::hash::Hash;

/// A hash of bytes that is the same in every version (FNV-1a).
pub(crate) fn stable_hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A key, made different from the earlier ones by a number at its end.
fn numbered(key: String, number: u32) -> String {
    match number {
        0 | 1 => key,
        number => format!("{key}.{number}"),
    }
}

/// The key without the number at its end, and that number.
fn without_number(key: &str) -> (&str, u32) {
    match key.rsplit_once('.') {
        Some((stem, number)) => match number.parse() {
            Ok(number @ 2..) => (stem, number),
            _ => (key, 1),
        },
        None => (key, 1),
    }
}

/// Distinct keys, by number.
#[derive(Default)]
struct KeyList {
    keys: Vec<String>,
    ids: HashMap<String, u32>,
}

impl KeyList {
    fn of(stems: impl Iterator<Item = String>) -> KeyList {
        let mut seen: HashMap<String, u32> = HashMap::new();
        let mut list = KeyList::default();
        for (stem, id) in stems.zip(0_u32..) {
            let number = seen.entry(stem.clone()).or_default();
            *number += 1;
            let key = numbered(stem, *number);
            list.ids.entry(key.clone()).or_insert(id);
            list.keys.push(key);
        }
        list
    }

    fn key(&self, id: u32) -> String {
        self.keys.get(id as usize).cloned().unwrap_or_default()
    }

    fn find(&self, what: &'static str, key: &str) -> Result<u32, Failure> {
        let found = self.ids.get(key).copied();
        found.ok_or_else(|| Failure::no_key(what, key))
    }
}

/// The keys of all things of a profile but functions.
pub(crate) struct Keys {
    modules: KeyList,
    processes: KeyList,
    threads: KeyList,
    programs: KeyList,
    events: KeyList,
}

fn module_stem(module: &Module) -> String {
    match &module.build_id {
        Some(build_id) if !build_id.is_empty() => {
            let mut key = String::from("m");
            for byte in build_id {
                // Writing to a String cannot fail.
                let _ = write!(key, "{byte:02x}");
            }
            key
        }
        _ => format!("p{:016x}", stable_hash(&module.path)),
    }
}

impl Keys {
    pub(crate) fn of(profile: &Profile) -> Keys {
        let modules = KeyList::of(profile.modules().iter().map(module_stem));
        let tasks = profile.tasks();
        let programs = tasks.programs().iter().map(|program| {
            let executable = program.executable.map(|module| modules.key(module));
            let identity = executable.unwrap_or_else(|| program.name.clone());
            format!("g{:016x}", stable_hash(identity.as_bytes()))
        });
        let programs = KeyList::of(programs);
        let processes = tasks.processes().iter();
        let threads = tasks.threads().iter();
        // Names of events repeat in few recordings; `#` cannot be taken for a part of a name's number.
        let mut seen: HashMap<&str, u32> = HashMap::new();
        let events = profile.events().iter().map(|event| {
            let number = seen.entry(event.name()).or_default();
            *number += 1;
            match *number {
                1 => event.name().to_owned(),
                number => format!("{}#{number}", event.name()),
            }
        });
        Keys {
            processes: KeyList::of(processes.map(|process| process.pid.to_string())),
            threads: KeyList::of(threads.map(|thread| thread.tid.to_string())),
            events: KeyList::of(events),
            programs,
            modules,
        }
    }

    pub(crate) fn module(&self, id: ModuleId) -> String {
        self.modules.key(id)
    }

    pub(crate) fn process(&self, id: ProcessId) -> String {
        self.processes.key(id)
    }

    pub(crate) fn thread(&self, id: ThreadId) -> String {
        self.threads.key(id)
    }

    pub(crate) fn program(&self, id: ProgramId) -> String {
        self.programs.key(id)
    }

    pub(crate) fn event(&self, index: usize) -> String {
        self.events.key(u32::try_from(index).unwrap_or(u32::MAX))
    }

    pub(crate) fn find_module(&self, key: &str) -> Result<ModuleId, Failure> {
        self.modules.find("module", key)
    }

    pub(crate) fn find_process(&self, key: &str) -> Result<ProcessId, Failure> {
        self.processes.find("process", key)
    }

    pub(crate) fn find_thread(&self, key: &str) -> Result<ThreadId, Failure> {
        self.threads.find("thread", key)
    }

    pub(crate) fn find_program(&self, key: &str) -> Result<ProgramId, Failure> {
        self.programs.find("program", key)
    }

    pub(crate) fn find_event(&self, key: &str) -> Result<usize, Failure> {
        Ok(self.events.find("event", key)? as usize)
    }
}

/// The property that distinguishes a function from others of its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum KeyPlace {
    /// Its first relative address.
    Start(u64),
    /// A hash of its name.
    Name(u64),
    /// The same, of code inside of other functions.
    Inlined(u64),
}

impl KeyPlace {
    fn of(function: &FunctionName) -> KeyPlace {
        match function.start {
            _ if function.is_inlined => KeyPlace::Inlined(function.link_name),
            // Ranges without names may begin where a function does.
            Some(start) if !function.is_unknown() => KeyPlace::Start(start),
            _ => KeyPlace::Name(stable_hash(function.name.as_bytes())),
        }
    }

    /// The place that the end of a key names.
    fn parse(text: &str) -> Option<KeyPlace> {
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let mut rest = text.chars();
        match (rest.next()?, number(rest.as_str())?) {
            ('@', start) => Some(KeyPlace::Start(start)),
            ('~', name) => Some(KeyPlace::Name(name)),
            ('^', name) => Some(KeyPlace::Inlined(name)),
            _ => None,
        }
    }
}

/// The keys of functions. Few are kept: most functions have a place of their own.
#[derive(Default)]
pub(crate) struct FunctionKeys {
    /// The functions that share their place with earlier ones, and which one of them each is.
    later: HashMap<FunctionId, u32>,
}

impl FunctionKeys {
    pub(crate) fn of(names: &Names) -> FunctionKeys {
        let mut seen: HashMap<(ModuleId, KeyPlace), u32> = HashMap::new();
        let mut later = HashMap::new();
        for (function, id) in names.functions().iter().zip(0_u32..) {
            let number = seen
                .entry((function.module, KeyPlace::of(function)))
                .or_default();
            *number += 1;
            if *number > 1 {
                later.insert(id, *number);
            }
        }
        FunctionKeys { later }
    }

    pub(crate) fn key(&self, names: &Names, keys: &Keys, id: FunctionId) -> String {
        let Some(function) = names.functions().get(id as usize) else {
            return String::new();
        };
        let module = keys.module(function.module);
        let key = match KeyPlace::of(function) {
            KeyPlace::Start(start) => format!("{module}@{start:x}"),
            KeyPlace::Name(name) => format!("{module}~{name:016x}"),
            KeyPlace::Inlined(name) => format!("{module}^{name:016x}"),
        };
        numbered(key, self.later.get(&id).copied().unwrap_or(1))
    }

    pub(crate) fn find(
        &self,
        names: &Names,
        keys: &Keys,
        key: &str,
    ) -> Result<FunctionId, Failure> {
        let wrong = || Failure::no_key("function", key);
        let at = key.rfind(['@', '~', '^']).ok_or_else(wrong)?;
        let (rest, number) = without_number(&key[at..]);
        let module = keys.find_module(&key[..at]).map_err(|_| wrong())?;
        let place = KeyPlace::parse(rest).ok_or_else(wrong)?;
        let is_it = |function: &FunctionName, id: u32| {
            function.module == module
                && KeyPlace::of(function) == place
                && self.later.get(&id).copied().unwrap_or(1) == number
        };
        let mut all = names.functions().iter().zip(0_u32..);
        let found = all.find(|(function, id)| is_it(function, *id));
        found.map(|(_, id)| id).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct_and_found_again() {
        let stems = ["1", "2", "1", "1", "1.2"];
        let list = KeyList::of(stems.iter().map(|stem| (*stem).to_owned()));
        assert_eq!(list.keys[..4], ["1", "2", "1.2", "1.3"]);
        for id in 0..4 {
            assert_eq!(list.find("thread", &list.key(id)), Ok(id));
        }
        assert!(list.find("thread", "7").is_err());
        assert_eq!(without_number("@1f.3"), ("@1f", 3));
        assert_eq!(without_number("@1f"), ("@1f", 1));
        assert_eq!(without_number("@1f.x"), ("@1f.x", 1));
    }

    #[test]
    fn places_are_parsed() {
        assert_eq!(KeyPlace::parse("@1f"), Some(KeyPlace::Start(0x1f)));
        assert_eq!(KeyPlace::parse("~00ff"), Some(KeyPlace::Name(0xff)));
        assert_eq!(KeyPlace::parse("^0"), Some(KeyPlace::Inlined(0)));
        for wrong in ["", "@", "1f", "@x", "é1", "@ffffffffffffffffff"] {
            assert_eq!(KeyPlace::parse(wrong), None, "{wrong}");
        }
    }
}
