//! Hardware events that the kernel names for every CPU, and the combinations of caches.

use super::{NamedEvent, event};

/// Every event of this kind, in the order of the kernel's numbers.
pub const EVENTS: &[NamedEvent] = &[
    event(0, &["cycles", "cpu-cycles"], "cycles of the CPU's clock"),
    event(1, &["instructions"], "instructions retired"),
    event(2, &["cache-references"], "accesses to the last cache"),
    event(
        3,
        &["cache-misses"],
        "accesses that the last cache could not serve",
    ),
    event(4, &["branches", "branch-instructions"], "branches retired"),
    event(5, &["branch-misses"], "branches predicted wrongly"),
    event(6, &["bus-cycles"], "cycles of the bus's clock"),
    event(
        7,
        &["stalled-cycles-frontend", "idle-cycles-frontend"],
        "cycles in which no instruction was fetched",
    ),
    event(
        8,
        &["stalled-cycles-backend", "idle-cycles-backend"],
        "cycles in which no instruction could be executed",
    ),
    event(9, &["ref-cycles"], "cycles of a clock of constant rate"),
];

/// Returns the number of the hardware event called `name`.
pub fn config(name: &str) -> Option<u64> {
    let event = EVENTS.iter().find(|event| event.names.contains(&name))?;
    Some(event.config)
}

/// Names of caches, at the index that is the cache's number; the first name is the canonical one.
const CACHES: [&[&str]; 7] = [
    &["L1-dcache", "l1-d", "l1d", "L1-data"],
    &["L1-icache", "l1-i", "l1i", "L1-instruction"],
    &["LLC", "L2"],
    &["dTLB", "d-tlb", "Data-TLB"],
    &["iTLB", "i-tlb", "Instruction-TLB"],
    &["branch", "branches", "bpu", "btb", "bpc"],
    &["node"],
];

/// Names of operations, in the same order as the kernel's numbers.
const OPERATIONS: [&[&str]; 3] = [
    &["loads", "load", "read"],
    &["stores", "store", "write"],
    &[
        "prefetches",
        "prefetch",
        "speculative-read",
        "speculative-load",
    ],
];

/// Names of results, in the same order as the kernel's numbers: accesses and misses.
const RESULTS: [&[&str]; 2] = [
    &["references", "refs", "Reference", "ops", "access"],
    &["misses", "miss"],
];

/// The operations that each cache has, a bit each: instruction caches and predictors are not written.
const POSSIBLE: [u8; 7] = [0b111, 0b101, 0b111, 0b111, 0b001, 0b001, 0b111];

/// Returns the number of the cache event called `name`, such as `L1-dcache-load-misses` or `LLC-loads`.
pub fn cache_config(name: &str) -> Option<u64> {
    // Longest first: a name can be the beginning of another.
    let strip = |rest: &'_ str, names: &[&[&str]]| -> Option<(usize, usize)> {
        let all = names
            .iter()
            .enumerate()
            .flat_map(|(index, names)| names.iter().map(move |name| (index, *name)));
        all.filter(|(_, name)| {
            let begins = rest
                .get(..name.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(name));
            begins
                && rest[name.len()..]
                    .chars()
                    .next()
                    .is_none_or(|next| next == '-')
        })
        .max_by_key(|(_, name)| name.len())
        .map(|(index, name)| (index, name.len()))
    };
    let (cache, length) = strip(name, &CACHES)?;
    let mut rest = &name[length..];
    let mut operation = None;
    let mut result = None;
    while let Some(part) = rest.strip_prefix('-') {
        if operation.is_none()
            && let Some((index, length)) = strip(part, &OPERATIONS)
        {
            operation = Some(index);
            rest = &part[length..];
        } else if result.is_none()
            && let Some((index, length)) = strip(part, &RESULTS)
        {
            result = Some(index);
            rest = &part[length..];
        } else {
            return None;
        }
    }
    if !rest.is_empty() || (operation.is_none() && result.is_none()) {
        return None;
    }
    let operation = operation.unwrap_or(0);
    let possible = POSSIBLE
        .get(cache)
        .is_some_and(|bits| bits >> operation & 1 != 0);
    let config = cache as u64 | (operation as u64) << 8 | (result.unwrap_or(0) as u64) << 16;
    possible.then_some(config)
}

/// Lists the canonical names of all cache events that make sense, with their numbers.
pub fn cache_events() -> impl Iterator<Item = (String, u64)> {
    CACHES.iter().enumerate().flat_map(|(cache, names)| {
        OPERATIONS
            .iter()
            .enumerate()
            .flat_map(move |(operation, operations)| {
                let possible = POSSIBLE[cache] >> operation & 1 != 0;
                (0..RESULTS.len())
                    .filter(move |_| possible)
                    .map(move |result| {
                        let name = match result {
                            0 => format!("{}-{}", names[0], operations[0]),
                            _ => format!("{}-{}-misses", names[0], operations[1]),
                        };
                        (
                            name,
                            cache as u64 | (operation as u64) << 8 | (result as u64) << 16,
                        )
                    })
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_cache_event_has_its_number() {
        let mut count = 0;
        for (name, config) in cache_events() {
            assert_eq!(cache_config(&name), Some(config), "{name}");
            count += 1;
        }
        assert_eq!(count, 2 * (4 * 3 + 2 + 1 + 1));
    }

    #[test]
    fn what_is_no_cache_event_is_none() {
        for name in [
            "",
            "L1",
            "L1-dcache",
            "LLC-",
            "iTLB-stores",
            "branch-misses-x",
            "LLC-loads-loads",
            "loads",
        ] {
            assert_eq!(cache_config(name), None, "{name}");
        }
        assert_eq!(cache_config("l1d-write-miss"), Some(0x1_0100));
        assert_eq!(cache_config("dTLB-misses"), Some(0x1_0003));
    }
}
