//! The section of events that were counted but not sampled: a line of text for each, its fields apart by tabs.

use super::parse::SectionDamage;
use dioptra_perfrecords::Unsampled;

/// Events told at most, far beyond what a recording has: a hostile file may repeat lines.
const MOST: usize = 1024;

/// Writes the section.
pub(crate) fn encode(all: &[Unsampled]) -> Vec<u8> {
    let line = |one: &Unsampled| {
        let name = one.event.replace(['\t', '\n'], " ");
        let unit = if one.is_time { "ns" } else { "events" };
        let Unsampled {
            counted,
            sampled,
            period,
            threads,
            ..
        } = one;
        format!("{name}\t{counted}\t{sampled}\t{period}\t{threads}\t{unit}\n")
    };
    all.iter().map(line).collect::<String>().into_bytes()
}

/// Reads the section.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Unsampled>, SectionDamage> {
    let mut all = Vec::new();
    let mut at = 0;
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    for line in lines.take_while(|line| line[0] != 0).take(MOST) {
        let one = std::str::from_utf8(line).ok().and_then(one);
        all.push(one.ok_or_else(|| SectionDamage {
            at,
            why: "a line of the section of unsampled events is not one".to_owned(),
        })?);
        at += line.len() as u64;
    }
    Ok(all)
}

fn one(line: &str) -> Option<Unsampled> {
    let mut fields = line.strip_suffix('\n')?.split('\t');
    let name = fields.next()?;
    let mut number = || fields.next()?.parse().ok();
    let (counted, sampled, period, threads) = (number()?, number()?, number()?, number()?);
    let is_time = match fields.next()? {
        "ns" => true,
        "events" => false,
        _ => return None,
    };
    Some(Unsampled::new(
        name,
        (counted, sampled),
        period,
        threads,
        is_time,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_damage_is_told_with_its_place() {
        let all = vec![
            Unsampled::new(
                "cpu-clock:u",
                (1_175_000_000, 8_000_000),
                1_000_000,
                1001,
                true,
            ),
            Unsampled::new("page-faults", (400, 0), 100, 200, false),
        ];
        let bytes = encode(&all);
        assert_eq!(decode(&bytes).unwrap(), all);
        // Sections are padded.
        let padded = [bytes.as_slice(), &[0; 5]].concat();
        assert_eq!(decode(&padded).unwrap(), all);
        let first = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for cut in first + 1..bytes.len() {
            assert_eq!(decode(&bytes[..cut]).unwrap_err().at, first as u64, "{cut}");
        }
    }
}
