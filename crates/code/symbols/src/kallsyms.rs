//! The lines of a kallsyms file.

use std::ops::Range;

const PAGE: u64 = 4096;

/// One line: `ffffffff81000000 T _text` or, for a module, `ffffffffc0201000 t name\t[ext4]`.
pub(crate) struct Line<'a> {
    pub address: u64,
    pub kind: u8,
    pub name: &'a [u8],
    pub module: Option<&'a [u8]>,
}

impl<'a> Line<'a> {
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let (address, rest) = address(line)?;
        let (kind, rest) = (*rest.first()?, &rest[1..]);
        let name = &rest[memchr::memchr(b' ', rest)? + 1..];
        let (name, module) = match memchr::memchr(b'\t', name) {
            Some(end) => {
                let module = name[end + 1..].trim_ascii();
                let module = module.strip_prefix(b"[")?.strip_suffix(b"]");
                (&name[..end], module)
            }
            None => (name, None),
        };
        Some(Self {
            address,
            kind,
            name,
            module,
        })
    }

    pub fn is_code(&self) -> bool {
        matches!(self.kind, b't' | b'T' | b'w' | b'W')
    }
}

/// The hexadecimal number before the first space, and what stands behind it.
fn address(line: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (index, &byte) in line.iter().enumerate() {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            b' ' if index > 0 => return Some((value, &line[index + 1..])),
            _ => return None,
        };
        if value >> 60 != 0 {
            return None;
        }
        value = value << 4 | u64::from(digit);
    }
    None
}

/// The lines of a kallsyms file by address.
pub(crate) struct Lines<'a> {
    text: &'a [u8],
    places: Places<'a>,
}

/// The address and the beginning of each line, in the order of addresses; equal ones as the file has them.
enum Places<'a> {
    Found(Vec<(u64, u32)>),
    Stored {
        /// Numbers of eight bytes, least first.
        addresses: &'a [u8],
        /// Numbers of four bytes, least first.
        starts: &'a [u8],
    },
}

impl<'a> Lines<'a> {
    /// Finds the lines; `each` sees them in the file's order.
    pub fn new(text: &'a [u8], mut each: impl FnMut(u64, &'a [u8])) -> Self {
        // The kernel's text has a few megabytes.
        let text = &text[..text.len().min(u32::MAX as usize)];
        let mut places = Vec::with_capacity(text.len() / 40);
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', text).chain([text.len()]) {
            let line = &text[start..end];
            if let Some((address, _)) = address(line) {
                each(address, line);
                places.push((address, start as u32));
            }
            start = end + 1;
        }
        // Nearly in order: the kernel's, then module by module.
        places.sort_by_key(|(address, _)| *address);
        Self {
            text,
            places: Places::Found(places),
        }
    }

    /// Lines whose places were stored. What is wrong with these leads to other names or none, never further.
    pub fn stored(text: &'a [u8], addresses: &'a [u8], starts: &'a [u8]) -> Self {
        Self {
            text,
            places: Places::Stored { addresses, starts },
        }
    }

    /// Leaves only some lines, by where they begin.
    pub fn retain(&mut self, is_kept: impl Fn(&Self, u32) -> bool) {
        let places = (0..self.len()).filter_map(|index| self.place(index));
        let kept = places.filter(|(_, start)| is_kept(self, *start)).collect();
        self.places = Places::Found(kept);
    }

    /// Returns the size of the text in bytes.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Returns the number of symbols.
    pub fn len(&self) -> usize {
        match &self.places {
            Places::Found(places) => places.len(),
            Places::Stored { addresses, starts } => (addresses.len() / 8).min(starts.len() / 4),
        }
    }

    /// The address of a line, and where it begins.
    pub fn place(&self, index: usize) -> Option<(u64, u32)> {
        match &self.places {
            Places::Found(places) => places.get(index).copied(),
            Places::Stored { addresses, starts } => {
                let address = addresses.as_chunks().0.get(index)?;
                let start = starts.as_chunks().0.get(index)?;
                Some((u64::from_le_bytes(*address), u32::from_le_bytes(*start)))
            }
        }
    }

    /// The line at a place.
    pub fn parse(&self, start: u32) -> Option<Line<'a>> {
        let text = self.text.get(start as usize..)?;
        let end = memchr::memchr(b'\n', text).unwrap_or(text.len());
        Line::parse(&text[..end])
    }

    /// The line with this index.
    pub fn line(&self, index: usize) -> Option<Line<'a>> {
        self.parse(self.place(index)?.1)
    }

    /// Returns the number of lines before the first one whose address `is_wanted` refuses.
    pub fn count_while(&self, is_wanted: impl Fn(u64) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.place(middle).is_some_and(|(at, _)| is_wanted(at)) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// The lines at the address of the line `index`.
    pub fn group(&self, index: usize) -> Range<usize> {
        let Some((address, _)) = self.place(index) else {
            return index..index;
        };
        self.count_while(|at| at < address)..self.count_while(|at| at <= address)
    }

    /// The next address above a group, and the owner of the symbol there.
    pub fn above(&self, group: &Range<usize>) -> Option<(u64, Option<&'a [u8]>)> {
        let (address, _) = self.place(group.end)?;
        let last = self.group(group.end).end.checked_sub(1)?;
        Some((address, self.line(last).and_then(|line| line.module)))
    }
}

/// Where a symbol ends, given the next higher address and whose it is. Every symbol bounds the one
/// before it, also one that names data. Modules lie apart from each other and from the kernel, so
/// the last symbol of each reaches no further than the page after its own.
pub(crate) fn end_of(line: &Line<'_>, above: Option<(u64, Option<&[u8]>)>) -> u64 {
    let next_page = line
        .address
        .checked_next_multiple_of(PAGE)
        .map_or(u64::MAX, |page| page.saturating_add(PAGE));
    match above {
        Some((address, module)) if module == line.module => address,
        Some((address, _)) => address.min(next_page),
        None => next_page,
    }
}
