//! Reading the section: any bytes give what they hold up to the first wrong one.

use super::{
    Burst, BurstOutcome, EventTotal, MAGIC, VERSION, WindowGroup, WindowLoss, WindowsSection,
    changed, part,
};
use dioptra_perfevents::windows::{Length, Schedule};
use thiserror::Error;

/// The most findings, groups, totals or losses that a section may have: recorders write a handful.
const LIST_LIMIT: usize = 4096;

/// The reason why a section of windows could not be read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the section of windows is wrong at its byte {offset}: {what}; what comes before is kept")]
pub struct SectionError {
    /// Bytes from the start of the section.
    pub offset: usize,
    /// The fault at that offset.
    pub what: &'static str,
}

/// Bytes that are read one value after the other.
#[derive(Clone, Copy)]
struct Values<'a> {
    bytes: &'a [u8],
    /// The offset of the first byte in the section.
    offset: usize,
}

impl<'a> Values<'a> {
    fn error(&self, what: &'static str) -> SectionError {
        let offset = self.offset;
        SectionError { offset, what }
    }

    fn take(&mut self, length: u64) -> Result<Values<'a>, SectionError> {
        let found = usize::try_from(length)
            .ok()
            .and_then(|length| self.bytes.split_at_checked(length));
        let (bytes, rest) = found.ok_or_else(|| self.error("it ends too soon"))?;
        let offset = self.offset;
        self.bytes = rest;
        self.offset += bytes.len();
        Ok(Values { bytes, offset })
    }

    fn number(&mut self) -> Result<u64, SectionError> {
        let mut value = 0_u64;
        for (index, byte) in self.bytes.iter().take(10).enumerate() {
            let bits = u64::from(byte & 0x7f);
            if index == 9 && bits > 1 {
                break;
            }
            value |= bits << (7 * index);
            if byte & 0x80 == 0 {
                self.bytes = &self.bytes[index + 1..];
                self.offset += index + 1;
                return Ok(value);
            }
        }
        Err(self.error(if self.bytes.len() < 10 {
            "it ends too soon"
        } else {
            "a number is too large"
        }))
    }

    fn small<T: TryFrom<u64>>(&mut self) -> Result<T, SectionError> {
        let error = self.error("a number is too large");
        T::try_from(self.number()?).map_err(|_| error)
    }

    fn difference(&mut self, from: u64) -> Result<u64, SectionError> {
        let value = self.number()?;
        Ok(from.wrapping_add((value >> 1) ^ (value & 1).wrapping_neg()))
    }

    fn optional(&mut self) -> Result<Option<u32>, SectionError> {
        let error = self.error("a number is too large");
        match self.number()?.checked_sub(1) {
            None => Ok(None),
            Some(value) => u32::try_from(value).map(Some).map_err(|_| error),
        }
    }

    fn text(self) -> String {
        String::from_utf8_lossy(self.bytes).into_owned()
    }
}

pub(super) fn decode(windows: &mut WindowsSection, bytes: &[u8]) -> Result<(), SectionError> {
    let mut at = Values { bytes, offset: 0 };
    start(&mut at)?;
    while !at.bytes.is_empty() {
        // In pipes of older recorders each record holds a section.
        if at.bytes.starts_with(MAGIC) {
            start(&mut at)?;
            continue;
        }
        let tag = at.number()?;
        if tag == part::PADDING {
            continue;
        }
        let length = at.number()?;
        match at.take(length) {
            Ok(content) => read_part(windows, tag, content)?,
            Err(error) => {
                if tag == part::BURSTS {
                    // The bursts before the end are whole.
                    let _ = bursts(&mut at, &mut windows.bursts);
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Reads the first bytes of a section.
fn start(at: &mut Values<'_>) -> Result<(), SectionError> {
    let magic = at.take(MAGIC.len() as u64)?;
    if magic.bytes != MAGIC {
        return Err(magic.error("it does not begin as such a section does"));
    }
    let version = at.take(1)?;
    if version.bytes != [VERSION] {
        return Err(version.error("a newer version of this program wrote it"));
    }
    Ok(())
}

fn read_part(
    windows: &mut WindowsSection,
    tag: u64,
    mut at: Values<'_>,
) -> Result<(), SectionError> {
    match tag {
        part::SOURCE => windows.source = at.text(),
        part::FINDING => push(&mut windows.findings, at.text(), at)?,
        part::INSTEAD => windows.instead = Some(at.text()),
        part::SCHEDULE => {
            windows.schedule = Some(schedule(&mut at)?);
            windows.warm_up = at.small()?;
        }
        part::GROUP => push(&mut windows.groups, group(&mut at)?, at)?,
        part::TOTAL => {
            let (value, enabled, running) = (at.number()?, at.number()?, at.number()?);
            let total = EventTotal {
                event: at.text(),
                value,
                enabled,
                running,
            };
            push(&mut windows.totals, total, at)?;
        }
        part::SPAN => windows.span = Some((at.number()?, at.number()?)),
        part::LOSS => {
            let count = at.number()?;
            let what = at.text();
            push(&mut windows.losses, WindowLoss { what, count }, at)?;
        }
        part::BURSTS => bursts(&mut at, &mut windows.bursts)?,
        // A later version added this part.
        _ => {}
    }
    Ok(())
}

fn push<T>(list: &mut Vec<T>, item: T, at: Values<'_>) -> Result<(), SectionError> {
    if list.len() >= LIST_LIMIT {
        return Err(at.error("more parts of one kind than any recorder writes"));
    }
    list.push(item);
    Ok(())
}

fn schedule(at: &mut Values<'_>) -> Result<Schedule, SectionError> {
    let length = |at: &mut Values<'_>| {
        let kind = at.number()?;
        let value = at.number()?;
        match kind {
            0 => Ok(Length::Time(value)),
            1 => Ok(Length::Count(value)),
            _ => Err(at.error("a length is neither a time nor a count")),
        }
    };
    Ok(Schedule {
        long: length(at)?,
        short: length(at)?,
        jitter: length(at)?,
        batch: at.small()?,
    })
}

fn group(at: &mut Values<'_>) -> Result<WindowGroup, SectionError> {
    let leader = at.small()?;
    let drop_last = at.number()? != 0;
    let count = at.number()?;
    let mut members = Vec::new();
    for _ in 0..count {
        members.push(at.small()?);
    }
    Ok(WindowGroup {
        leader,
        members,
        drop_last,
    })
}

/// A block of bursts.
fn bursts(at: &mut Values<'_>, list: &mut Vec<Burst>) -> Result<(), SectionError> {
    let mut last = Burst::default();
    while !at.bytes.is_empty() {
        // Fields that did not change keep their values.
        let mut burst = last;
        // Outcomes of later versions that no byte holds are not known here.
        burst.outcome = BurstOutcome::from_bits_retain((at.number()? & 0xff) as u8);
        let fields = at.number()?;
        burst.armed = at.difference(last.armed)?;
        burst.ended = at.difference(burst.armed)?;
        burst.period = at.difference(last.period)?;
        if fields & changed::GROUP != 0 {
            burst.group = at.small()?;
        }
        if fields & changed::CPU != 0 {
            burst.cpu = at.optional()?;
        }
        if fields & changed::TID != 0 {
            burst.tid = at.optional()?;
        }
        if fields & changed::EXPECTED != 0 {
            burst.expected = at.small()?;
        }
        burst.seen = if fields & changed::SEEN != 0 {
            at.small()?
        } else {
            burst.expected
        };
        list.push(burst);
        last = burst;
    }
    Ok(())
}
