//! Event names: one event has many spellings.
//!
//! A recorded `cpu_core/INST_RETIRED.ANY/u` answers a formula's `inst_retired:any`, `r00c0` answers
//! `cpu/event=0xc0,umask=0x0/`. Two parts of names are compared. One is the name in lower case, dots as colons, without
//! unit and modifiers, with the kernel's aliases folded (`cpu-cycles` is `cycles`). The other is the encoding, field by
//! field.

use std::collections::HashMap;

/// The kernel's alternative names, each with the one used as key.
const ALIASES: &[(&str, &str)] = &[
    ("cpu-cycles", "cycles"),
    ("branch-instructions", "branches"),
    ("idle-cycles-frontend", "stalled-cycles-frontend"),
    ("idle-cycles-backend", "stalled-cycles-backend"),
    ("faults", "page-faults"),
    ("cs", "context-switches"),
    ("migrations", "cpu-migrations"),
    ("bus_cycles", "bus-cycles"),
    ("ref_cycles", "ref-cycles"),
    ("l1-dcache-loads", "l1-dcache-load"),
    ("l1-dcache-load-misses", "l1-dcache-load-miss"),
];

/// Terms in `pmu/…/` that change the way of counting, not the event.
const NOT_IDENTITY: &[&str] = &[
    "period",
    "freq",
    "time",
    "call-graph",
    "stack-size",
    "inherit",
    "no-inherit",
    "max-stack",
    "nr",
    "overwrite",
    "no-overwrite",
    "driver-config",
    "percore",
    "aux-output",
    "aux-sample-size",
    "branch_type",
    "metric-id",
    "precise",
];

/// Bits of x86's event select register that the kernel sets itself: user, kernel, interrupt, enable.
const HOW: u64 = 1 << 16 | 1 << 17 | 1 << 20 | 1 << 22;

/// The parts of an event's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventName {
    /// The name that is compared.
    pub key: String,
    /// The counting unit before the slash, in lower case; empty if there is none.
    pub pmu: String,
    /// Letters such as `u` or `pp` after the last colon or slash.
    pub modifiers: String,
    /// The encoding in canonical form, if the name states one.
    pub encoding: Option<String>,
}

impl EventName {
    /// Takes any text apart; every text has a result.
    pub fn parse(name: &str) -> Self {
        let text = name.trim();
        if let Some((pmu, rest)) = text.split_once('/')
            && !pmu.is_empty()
            && let Some((terms, modifiers)) = rest.rsplit_once('/')
        {
            let modifiers = modifiers.trim_start_matches(':').to_owned();
            let unit = pmu.to_ascii_lowercase();
            let terms_read = read_terms(&unit, terms);
            if terms_read.is_empty() {
                // `cycles/period=1000,name=x/`: an event whose terms only change the way of counting.
                return Self {
                    key: plain_key(terms_read.name.as_deref().unwrap_or(pmu)),
                    pmu: String::new(),
                    modifiers,
                    encoding: raw_encoding(pmu),
                };
            }
            let Terms {
                name: own_name,
                encoding,
                ..
            } = terms_read;
            let pmu = unit;
            let key = match own_name {
                Some(name) => plain_key(&name),
                None => terms.to_ascii_lowercase(),
            };
            return Self {
                key,
                pmu,
                modifiers,
                encoding,
            };
        }
        let (plain, modifiers) = match text.rsplit_once(':') {
            Some((plain, m)) if !plain.is_empty() && is_modifiers(m) => (plain, m),
            _ => (text, ""),
        };
        Self {
            key: plain_key(plain),
            pmu: String::new(),
            modifiers: modifiers.to_owned(),
            encoding: raw_encoding(plain),
        }
    }
}

fn plain_key(name: &str) -> String {
    let key = name.to_ascii_lowercase().replace('.', ":");
    ALIASES
        .iter()
        .find(|(alias, _)| *alias == key)
        .map_or(key, |(_, name)| (*name).to_owned())
}

fn is_modifiers(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b"ukhvGHIpPSDWeRb".contains(&b))
}

/// Returns the encoding of `r` and hexadecimal digits: x86's register layout. On other machines the low bits are the
/// event as well.
fn raw_encoding(name: &str) -> Option<String> {
    let hex = name.strip_prefix('r')?;
    if hex.is_empty() || hex.len() > 16 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    Some(canonical(u64::from_str_radix(hex, 16).ok()? & !HOW, &[]))
}

/// The meaning of the terms between slashes.
struct Terms {
    /// The event's name, from the term `name` or from a bare word.
    name: Option<String>,
    /// Whether a bare word names one of the unit's events.
    names_event: bool,
    encoding: Option<String>,
}

impl Terms {
    /// Returns true if the terms leave the counted event open.
    fn is_empty(&self) -> bool {
        !self.names_event && self.encoding.is_none()
    }
}

fn read_terms(pmu: &str, terms: &str) -> Terms {
    let mut name = None;
    let mut named_by_term = false;
    let mut names_event = false;
    let mut config = 0u64;
    let mut seen = false;
    let mut others = Vec::new();
    for term in terms.split(',').map(str::trim).filter(|t| !t.is_empty()) {
        let (field, value) = match term.split_once('=') {
            Some((field, value)) => (field, Some(value)),
            None => (term, None),
        };
        let field = field.to_ascii_lowercase();
        if field == "name" {
            name = value.map(str::to_owned);
            named_by_term = true;
            continue;
        }
        if NOT_IDENTITY.contains(&field.as_str()) {
            continue;
        }
        let number = match value {
            None => Some(1),
            Some(v) => parse_number(v),
        };
        let shift = |bits: u64, at: u32| number.map(|n| (n & bits) << at);
        let bits = match field.as_str() {
            "event" if pmu.starts_with("armv8") => number,
            // AMD's events have four more bits at 32.
            "event" => number.map(|n| n & 0xff | (n >> 8 & 0xf) << 32 | (n & !0xfff)),
            "umask" => shift(0xff, 8),
            "edge" => shift(1, 18),
            "any" => shift(1, 21),
            "inv" => shift(1, 23),
            "cmask" => shift(0xff, 24),
            "config" => number,
            _ if value.is_none() => {
                names_event = true;
                if !named_by_term {
                    name = Some(term.to_owned());
                }
                continue;
            }
            _ => {
                others.push(match number {
                    Some(n) => format!("{field}={n:#x}"),
                    None => term.to_ascii_lowercase(),
                });
                seen = true;
                continue;
            }
        };
        match bits {
            Some(bits) => config |= bits,
            None => others.push(term.to_ascii_lowercase()),
        }
        seen = true;
    }
    let encoding = seen.then(|| {
        others.sort();
        let own = canonical(config, &others);
        if pmu.starts_with("cpu") || pmu.starts_with("armv8") {
            own
        } else {
            // Another unit's fields are its own: the same letters mean another event.
            format!("{pmu}:{own}")
        }
    });
    Terms {
        name,
        names_event,
        encoding,
    }
}

fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn canonical(config: u64, others: &[String]) -> String {
    let mut text = format!("{config:#x}");
    for other in others {
        text.push(',');
        text.push_str(other);
    }
    text
}

/// An event that a profile has.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RecordedEvent {
    /// The name that the profile gives.
    pub name: String,
    /// The fixed number of events between two samples, scaled for multiplexing: the weight that one sample would have
    /// had in a row without any. Where the period is not fixed, the mean weight of the profile's samples serves.
    pub period: Option<f64>,
    /// The group in which the event was counted. A formula takes all of its inputs from one group where it can.
    pub group: Option<u32>,
}

impl RecordedEvent {
    /// Makes an event of which only the name is known.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }
}

/// The recorded events, findable under every spelling.
#[derive(Debug)]
pub(crate) struct EventIndex {
    names: Vec<(EventName, Option<u32>, String)>,
    by_key: HashMap<String, Vec<u32>>,
    by_encoding: HashMap<String, Vec<u32>>,
}

impl EventIndex {
    pub(crate) fn new(events: &[RecordedEvent]) -> Self {
        let mut index = Self {
            names: Vec::new(),
            by_key: HashMap::new(),
            by_encoding: HashMap::new(),
        };
        for (i, event) in events.iter().enumerate() {
            let name = EventName::parse(&event.name);
            let i = i as u32;
            index.by_key.entry(name.key.clone()).or_default().push(i);
            if let Some(encoding) = &name.encoding {
                index
                    .by_encoding
                    .entry(encoding.clone())
                    .or_default()
                    .push(i);
            }
            index.names.push((name, event.group, event.name.clone()));
        }
        index
    }

    /// Returns every recorded event that answers to one of the spellings, first by name, then by encoding. Within each,
    /// an exact spelling comes first, then names with the same modifiers, then all other names, in the order of
    /// recording.
    pub(crate) fn candidates<'n>(&self, spellings: impl IntoIterator<Item = &'n str>) -> Vec<u32> {
        let mut found: Vec<((u8, u8), u32)> = Vec::new();
        for spelling in spellings {
            let wanted = EventName::parse(spelling);
            let by_key = self.by_key.get(&wanted.key).into_iter().flatten();
            let by_encoding = wanted
                .encoding
                .iter()
                .flat_map(|e| self.by_encoding.get(e))
                .flatten();
            for (how, list) in [(0, by_key.collect::<Vec<_>>()), (1, by_encoding.collect())] {
                for &i in list {
                    let (own, _, text) = &self.names[i as usize];
                    if !same_unit(&wanted.pmu, &own.pmu) || found.iter().any(|(_, f)| *f == i) {
                        continue;
                    }
                    let spelled = if text == spelling {
                        0
                    } else if own.modifiers == wanted.modifiers {
                        1
                    } else {
                        2
                    };
                    found.push(((how, spelled), i));
                }
            }
        }
        found.sort();
        found.into_iter().map(|(_, i)| i).collect()
    }

    pub(crate) fn group(&self, event: u32) -> Option<u32> {
        self.names[event as usize].1
    }

    pub(crate) fn has_groups(&self) -> bool {
        self.names.iter().any(|(_, group, _)| group.is_some())
    }

    pub(crate) fn modifiers(&self, event: u32) -> &str {
        &self.names[event as usize].0.modifiers
    }

    pub(crate) fn text(&self, event: u32) -> &str {
        &self.names[event as usize].2
    }
}

/// Returns true if an event of the unit `own` may answer for one of the unit `wanted`. `cpu` means any core.
fn same_unit(wanted: &str, own: &str) -> bool {
    let core = |unit: &str| unit.is_empty() || unit.starts_with("cpu") || unit.starts_with("armv8");
    wanted.is_empty()
        || own.is_empty()
        || wanted == own
        || (matches!(wanted, "cpu") && core(own))
        || (matches!(own, "cpu") && core(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(a: &str, b: &str) -> bool {
        !EventIndex::new(&[RecordedEvent::named(a)])
            .candidates([b])
            .is_empty()
    }

    #[test]
    fn one_event_many_spellings() {
        for (recorded, wanted) in [
            ("cycles:u", "cycles"),
            ("cpu/cycles/", "cpu-cycles"),
            ("cpu_core/cycles/uP", "cycles"),
            ("cpu-cycles", "CYCLES"),
            ("INST_RETIRED.ANY:pp", "inst_retired:any"),
            ("branch-instructions", "branches"),
            ("r00c4", "cpu/event=0xc4,umask=0x00/"),
            ("r1d301c2", "cpu/event=0xc2,umask=0x1,cmask=1,inv=1/"),
            ("cpu/event=0xc4/", "cpu/umask=0,event=0xC4,period=100/"),
            ("cpu/event=0xc4,name=Branches/", "branches"),
            ("cpu/event=0xc4,name=Branches/", "r00c4"),
            ("armv8_pmuv3_0/event=0x11/", "r11"),
            ("cpu/event=0x1a0,umask=0x1e/", "r100001ea0"),
            ("page-faults:u", "faults"),
            ("cycles/period=1000/u", "cpu-cycles"),
            ("r11/period=1000,name=CPU_CYCLES/", "cpu_cycles"),
            (
                "r11/period=1000,name=CPU_CYCLES/",
                "armv8_pmuv3_0/event=0x11/",
            ),
        ] {
            assert!(
                same(recorded, wanted),
                "{recorded} should answer to {wanted}"
            );
        }
        for (recorded, wanted) in [
            ("cycles", "instructions"),
            (
                "rs_events:empty_cycles",
                "rs_events:empty_cycles:c=1:i=1:e=1",
            ),
            ("r01c4", "cpu/event=0xc4/"),
            ("uncore_imc/event=0xc4/", "cpu/event=0xc4/"),
            ("cpu_atom/cycles/", "cpu_core/cycles/"),
            ("sched:sched_switch", "sched:sched_wakeup"),
            ("cpu/event=0xd3,umask=1,ldlat=3/", "cpu/event=0xd3,umask=1/"),
        ] {
            assert!(
                !same(recorded, wanted),
                "{recorded} should not answer to {wanted}"
            );
        }
    }

    #[test]
    fn order_of_candidates() {
        let recorded = ["cycles:u", "cpu/cycles/", "cycles"].map(RecordedEvent::named);
        assert_eq!(EventIndex::new(&recorded).candidates(["cycles"]), [2, 1, 0]);
        assert_eq!(
            EventIndex::new(&recorded).candidates(["cycles:u"]),
            [0, 1, 2]
        );
    }

    #[test]
    fn any_text_is_a_name() {
        for text in [
            "",
            "/",
            "//",
            ":",
            ":u",
            "r",
            "rzz",
            "cpu/",
            "cpu/,=,/",
            "cpu/event=/x",
            "é/ü/ö",
        ] {
            let _ = EventName::parse(text);
        }
    }
}
