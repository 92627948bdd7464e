//! The source of a memory access's data: the word of `PERF_SAMPLE_DATA_SRC`.

use std::fmt;

/// A data source word. Its fields are sets of bits or numbers, whose names [`DataSource::fields`] gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DataSource(pub u64);

/// A field of a [`DataSource`] in words, such as `L3 hit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceField {
    /// The name: `op`, `level`, `snoop`, `lock`, `tlb`, `blocked` or `hops`.
    pub name: &'static str,
    /// The value.
    pub text: String,
}

const OPERATIONS: [&str; 5] = ["N/A", "load", "store", "prefetch", "exec"];
/// From bit 3 of the level field on.
const LEVELS: [&str; 11] = [
    "L1",
    "line fill buffer",
    "L2",
    "L3",
    "local RAM",
    "remote RAM (1 hop)",
    "remote RAM (2 hops)",
    "remote cache (1 hop)",
    "remote cache (2 hops)",
    "I/O",
    "uncached",
];
const SNOOPS: [&str; 5] = ["N/A", "none", "hit", "miss", "modified"];
/// From bit 3 of the TLB field on.
const TLBS: [&str; 4] = ["L1", "L2", "walker", "fault"];

impl DataSource {
    const fn bits(self, first: u32, count: u32) -> u64 {
        self.0 >> first & ((1 << count) - 1)
    }

    /// Returns whether the access was a load.
    pub fn is_load(self) -> bool {
        self.bits(0, 5) & 2 != 0
    }

    /// Returns whether the access was a store.
    pub fn is_store(self) -> bool {
        self.bits(0, 5) & 4 != 0
    }

    /// Returns whether the access was locked.
    pub fn is_locked(self) -> bool {
        self.bits(24, 2) & 2 != 0
    }

    /// Returns whether another core's cache had the line modified (a sign of true or false sharing).
    pub fn is_modified_elsewhere(self) -> bool {
        self.bits(19, 5) & 16 != 0
    }

    /// Returns the kind of access: a load, a store, a prefetch or code.
    pub fn operation(self) -> String {
        named(self.bits(0, 5), &OPERATIONS)
    }

    /// Returns the place of the data: a level of the memory hierarchy, whether the data was found there, and whether on
    /// another node.
    pub fn level(self) -> String {
        let level = self.bits(5, 14);
        let number = self.bits(33, 4);
        // The newer field names levels that have no bit in the older field.
        let mut place = match number {
            1..=4 => format!("L{number}"),
            5 => "L2 miss handling buffer".to_owned(),
            6 => "memory-side cache".to_owned(),
            8 => "uncached".to_owned(),
            9 => "CXL".to_owned(),
            10 => "I/O".to_owned(),
            11 => "any cache".to_owned(),
            12 => "line fill buffer".to_owned(),
            13 => "RAM".to_owned(),
            14 => "persistent memory".to_owned(),
            _ => joined(level >> 3, &LEVELS),
        };
        if place.is_empty() {
            if number == 7 {
                return "level 7".to_owned();
            }
            place = "N/A".to_owned();
        }
        if self.bits(37, 1) == 1 {
            place.insert_str(0, "remote ");
        }
        match level & 6 {
            2 => place + " hit",
            4 => place + " miss",
            6 => place + " hit or miss",
            _ => place,
        }
    }

    /// Returns the answer of the other caches to the snoop.
    pub fn snoop(self) -> String {
        let mut text = named(self.bits(19, 5), &SNOOPS);
        for (bit, name) in [(1, "forwarded"), (2, "from a peer")] {
            if self.bits(38, 2) & bit != 0 {
                text = if text == "N/A" {
                    name.to_owned()
                } else {
                    format!("{text}, {name}")
                };
            }
        }
        text
    }

    /// Returns the TLB levels that translated the address, and whether they hit.
    pub fn tlb(self) -> String {
        let tlb = self.bits(26, 7);
        let mut text = joined(tlb >> 3, &TLBS);
        let outcome = match tlb & 6 {
            2 => "hit",
            4 => "miss",
            6 => "hit or miss",
            _ => "",
        };
        if text.is_empty() {
            text = if outcome.is_empty() { "N/A" } else { outcome }.to_owned();
        } else if !outcome.is_empty() {
            text = format!("{text} {outcome}");
        }
        text
    }

    /// Returns whether the access was locked.
    pub fn lock(self) -> &'static str {
        match self.bits(24, 2) {
            0 => "no",
            1 => "N/A",
            _ => "locked",
        }
    }

    /// Returns the reason that blocked the access.
    pub fn blocked(self) -> String {
        match self.bits(40, 3) {
            0 => "no".to_owned(),
            bits => named(bits, &["N/A", "data not ready", "address conflict"]),
        }
    }

    /// Returns the distance of the data's node.
    pub fn hops(self) -> &'static str {
        match self.bits(43, 3) {
            0 => "N/A",
            1 => "other core, same node",
            2 => "other node, same socket",
            3 => "other socket, same board",
            4 => "other board",
            _ => "further",
        }
    }

    /// Returns all fields in words.
    pub fn fields(self) -> [SourceField; 7] {
        [
            ("op", self.operation()),
            ("level", self.level()),
            ("snoop", self.snoop()),
            ("lock", self.lock().to_owned()),
            ("tlb", self.tlb()),
            ("blocked", self.blocked()),
            ("hops", self.hops().to_owned()),
        ]
        .map(|(name, text)| SourceField { name, text })
    }
}

impl fmt::Display for DataSource {
    /// Writes `load, L1 hit, snoop none, TLB L1 or L2 hit`, and leaves out fields that say nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.operation(), self.level())?;
        for (name, text) in [("snoop", self.snoop()), ("TLB", self.tlb())] {
            if text != "N/A" {
                write!(f, ", {name} {text}")?;
            }
        }
        if self.is_locked() {
            write!(f, ", locked")?;
        }
        if self.bits(40, 3) > 1 {
            write!(f, ", blocked: {}", self.blocked())?;
        }
        if self.bits(43, 3) != 0 {
            write!(f, ", {}", self.hops())?;
        }
        Ok(())
    }
}

/// Returns the names of the set bits; nothing where none is set.
fn joined(bits: u64, names: &[&str]) -> String {
    let set = names.iter().enumerate();
    let set: Vec<&str> = set
        .filter(|(bit, _)| bits >> bit & 1 == 1)
        .map(|(_, name)| *name)
        .collect();
    set.join(" or ")
}

/// Returns the names of the set bits of a field whose lowest bit means "not available".
fn named(bits: u64, names: &[&str]) -> String {
    let known = joined(bits & !1, names);
    if known.is_empty() {
        "N/A".to_owned()
    } else {
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of recordings, checked against the output of `perf script -F data_src`.
    #[test]
    fn words_read_as_perf_reads_them() {
        // |OP LOAD|LVL LFB/MAB hit|SNP None|TLB L1 or L2 hit|LCK No|BLK N/A
        let source = DataSource(0x118_6810_0242);
        assert_eq!(
            source.to_string(),
            "load, line fill buffer hit, snoop none, TLB L1 or L2 hit"
        );
        // |OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK Yes|BLK N/A
        let source = DataSource(0x102_6a10_0142);
        assert!(source.is_load() && source.is_locked() && !source.is_store());
        assert_eq!(source.level(), "L1 hit");
        // |OP LOAD|LVL L3 hit|SNP None|TLB L2 miss|LCK No|BLK N/A
        let source = DataSource(0x106_5010_0842);
        assert_eq!(source.level(), "L3 hit");
        assert_eq!(source.tlb(), "L2 miss");
        assert_eq!(source.lock(), "no");
        assert_eq!(source.blocked(), "N/A");
    }

    #[test]
    fn newer_fields_are_read() {
        // A load from RAM of another node, forwarded, two hops.
        let source = DataSource(2 | 2 << 5 | 13 << 33 | 1 << 37 | 1 << 38 | 2 << 43 | 16 << 19);
        assert_eq!(
            source.to_string(),
            "load, remote RAM hit, snoop modified, forwarded, other node, same socket"
        );
        assert!(source.is_modified_elsewhere());
        assert_eq!(DataSource(0).to_string(), "N/A, N/A");
        assert_eq!(DataSource(1 << 5 | 1).level(), "N/A");
    }
}
