//! Which CPU a profile comes from, and whether a pattern names it.

use std::fmt::{self, Display, Formatter};

/// A CPU as a profile's header names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CpuId {
    /// By the CPUID instruction.
    X86 {
        /// `GenuineIntel`, `AuthenticAMD`, …
        vendor: String,
        /// The displayed family.
        family: u32,
        /// The displayed model.
        model: u32,
        /// The stepping, where the text has one.
        stepping: Option<u32>,
    },
    /// By the register MIDR_EL1.
    Arm64 {
        /// Its 32 bits: implementer, variant, architecture, part, revision.
        midr: u32,
    },
    /// Anything else, as it stands.
    Other(String),
}

impl CpuId {
    /// Reads `GenuineIntel-6-3F-2` (family decimal, model and stepping hexadecimal), `GenuineIntel,6,63,2` (all
    /// decimal, the form of a header's CPUID feature) or a MIDR (`0x00000000410fd0c0`). Total: other text is kept.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        let other = || Self::Other(text.to_owned());
        if let Some(hex) = text.strip_prefix("0x") {
            return match u64::from_str_radix(hex, 16) {
                Ok(midr) => Self::Arm64 { midr: midr as u32 },
                Err(_) => other(),
            };
        }
        let (mark, radix) = if text.contains(',') {
            (',', 10)
        } else {
            ('-', 16)
        };
        let mut parts = text.split(mark);
        let vendor = parts.next().unwrap_or_default();
        let family = parts.next().and_then(|p| p.parse().ok());
        let model = parts
            .next()
            .and_then(|p| u32::from_str_radix(p, radix).ok());
        let stepping = parts
            .next()
            .and_then(|p| u32::from_str_radix(p, radix).ok());
        match (family, model) {
            (Some(family), Some(model)) if vendor.chars().all(|c| c.is_ascii_alphabetic()) => {
                Self::X86 {
                    vendor: vendor.to_owned(),
                    family,
                    model,
                    stepping,
                }
            }
            _ => other(),
        }
    }

    /// Whether `pattern` names this CPU.
    ///
    /// For x86 the pattern is `Vendor-family-model[-stepping]` in the same digits as [`parse`](Self::parse), where a
    /// part may hold sets of characters such as `[12]` or `[0-9A-F]`; without stepping it means all. For Arm it is
    /// `arm64-IMPLEMENTER-PART` (`arm64-0x41-0xd40`) or a MIDR, which means this part from this revision on.
    pub fn matches(&self, pattern: &str) -> bool {
        match self {
            Self::X86 {
                vendor,
                family,
                model,
                stepping,
            } => {
                let mut parts = split_outside_sets(pattern);
                let named =
                    |part: Option<&str>, own: &str| part.is_some_and(|p| matches_set(p, own));
                // A mapfile writes models with or without a leading zero.
                named(parts.next(), vendor)
                    && named(parts.next(), &family.to_string())
                    && parts.next().is_some_and(|p| {
                        matches_set(p, &format!("{model:X}"))
                            || matches_set(p, &format!("{model:02X}"))
                    })
                    && parts
                        .next()
                        .is_none_or(|p| stepping.is_some_and(|s| matches_set(p, &format!("{s:X}"))))
            }
            Self::Arm64 { midr } => {
                let hex = |text: &str| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok();
                if let Some(wanted) = pattern
                    .strip_prefix("0x")
                    .and_then(|h| u64::from_str_radix(h, 16).ok())
                {
                    let wanted = wanted as u32;
                    let part = |m: u32| (m >> 24, m >> 4 & 0xfff);
                    let revision = |m: u32| (m >> 20 & 0xf, m & 0xf);
                    return part(wanted) == part(*midr) && revision(*midr) >= revision(wanted);
                }
                let mut parts = pattern.split('-');
                parts.next() == Some("arm64")
                    && parts.next().and_then(hex) == Some(midr >> 24)
                    && parts.next().and_then(hex) == Some(midr >> 4 & 0xfff)
            }
            Self::Other(text) => pattern == text,
        }
    }
}

impl Display for CpuId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::X86 {
                vendor,
                family,
                model,
                stepping,
            } => {
                write!(f, "{vendor}-{family}-{model:X}")?;
                stepping.map_or(Ok(()), |s| write!(f, "-{s:X}"))
            }
            Self::Arm64 { midr } => write!(f, "{midr:#018x}"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// The parts between dashes that stand outside of brackets.
fn split_outside_sets(pattern: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    pattern.split(move |c| {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            _ => {}
        }
        c == '-' && !inside
    })
}

/// Returns true if `text` equals `pattern`, where `[…]` stands for one of the characters or ranges inside. Letters'
/// case is ignored.
fn matches_set(pattern: &str, text: &str) -> bool {
    let mut pattern = pattern.chars();
    let mut text = text.chars();
    loop {
        match pattern.next() {
            None => return text.next().is_none(),
            Some('[') => {
                let Some(own) = text.next().map(|c| c.to_ascii_uppercase()) else {
                    return false;
                };
                let set: Vec<char> = pattern
                    .by_ref()
                    .take_while(|&c| c != ']')
                    .map(|c| c.to_ascii_uppercase())
                    .collect();
                let ranged = set
                    .windows(3)
                    .any(|w| w[1] == '-' && w[0] <= own && own <= w[2]);
                if !(ranged || own != '-' && set.contains(&own)) {
                    return false;
                }
            }
            Some(p) => {
                if !text.next().is_some_and(|t| t.eq_ignore_ascii_case(&p)) {
                    return false;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_x86() {
        let dashes = CpuId::parse("GenuineIntel-6-3F-2");
        assert_eq!(dashes, CpuId::parse("GenuineIntel,6,63,2"));
        assert_eq!(dashes.to_string(), "GenuineIntel-6-3F-2");
        assert!(dashes.matches("GenuineIntel-6-3F"));
        assert!(dashes.matches("GenuineIntel-6-3f-[0-3]"));
        assert!(!dashes.matches("GenuineIntel-6-3F-[56789ABCDEF]"));
        assert!(!dashes.matches("GenuineIntel-6-3C"));
        assert!(!dashes.matches("GenuineIntel-6"));
        assert!(CpuId::parse("AuthenticAMD,25,17,1").matches("AuthenticAMD-25-1[0-9A-F]"));
        assert!(!CpuId::parse("AuthenticAMD,25,33,2").matches("AuthenticAMD-25-1[0-9A-F]"));
        assert!(CpuId::parse("GenuineIntel-6-8F").matches("GenuineIntel-6-[8C]F"));
    }

    #[test]
    fn midr() {
        let n1 = CpuId::parse("0x00000000413fd0c1");
        assert!(n1.matches("arm64-0x41-0xd0c"));
        assert!(!n1.matches("arm64-0x41-0xd40"));
        assert!(n1.matches("0x00000000410fd0c0"));
        assert!(!n1.matches("0x00000000414fd0c0"));
    }

    #[test]
    fn anything_else_is_kept() {
        for text in [
            "",
            "IBM,3931,704",
            "0xzz",
            "x-y-z",
            "-,-",
            "[",
            "GenuineIntel-6-[",
        ] {
            let id = CpuId::parse(text);
            assert!(!id.matches("GenuineIntel-6-3F"), "{text}");
            let _ = id.matches("[");
        }
    }
}
