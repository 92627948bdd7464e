//! The lines of `perf script`: headers of samples, and frames.

/// The first line of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header<'a> {
    pub comm: &'a str,
    pub pid: u32,
    pub tid: u32,
    pub cpu: Option<u32>,
    /// Nanoseconds.
    pub time: Option<u64>,
    pub period: Option<u64>,
    /// The event's name; empty for a record that is no sample.
    pub event: &'a str,
    /// The text behind the event: a frame, or a tracepoint's fields.
    pub rest: &'a str,
    /// Whether the line is about a record that is no sample.
    pub is_other_record: bool,
}

/// A frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub address: u64,
    /// The function, without an offset.
    pub symbol: &'a str,
    /// The symbol with its offset.
    pub with_offset: &'a str,
    /// The module; empty if it is not known.
    pub module: &'a str,
    /// Whether the compiler inlined the function into that of the next frame.
    pub is_inlined: bool,
}

/// Splits a text at its first blank.
fn word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    if text.is_empty() {
        return None;
    }
    let end = text.find([' ', '\t']).unwrap_or(text.len());
    Some(text.split_at(end))
}

/// Reads a header: `COMM PID[/TID] [CPU] TIME: PERIOD EVENT: REST`, of which CPU, time and period may be missing.
pub(super) fn header(line: &str) -> Option<Header<'_>> {
    // A name may hold blanks and numbers, so each number is tried for the thread's.
    let trimmed = line.trim_start();
    let mut at = word(trimmed)?.0.len();
    while let Some((text, rest)) = word(&trimmed[at..]) {
        if let Some((pid, tid)) = task(text)
            && let Some(found) = behind_task(rest)
        {
            let (process, thread) = match tid {
                Some(tid) => (pid, tid),
                None => (pid, pid),
            };
            return Some(Header {
                comm: trimmed[..at].trim_end(),
                pid: process,
                tid: thread,
                ..found
            });
        }
        // A time that cannot be read is no part of a name.
        if text.ends_with(':') && text.starts_with(|first: char| first.is_ascii_digit()) {
            return None;
        }
        at = trimmed.len() - rest.len();
    }
    None
}

/// Reads `123` or `123/456`; perf writes `-1` for an unknown thread.
fn task(text: &str) -> Option<(u32, Option<u32>)> {
    let number = |text: &str| match text {
        "-1" => Some(u32::MAX - 1),
        text => text.parse().ok(),
    };
    match text.split_once('/') {
        Some((pid, tid)) => Some((number(pid)?, Some(number(tid)?))),
        None => Some((number(text)?, None)),
    }
}

fn behind_task(text: &str) -> Option<Header<'_>> {
    let mut header = Header::default();
    let (mut own, mut rest) = word(text)?;
    if let Some(cpu) = own.strip_prefix('[').and_then(|own| own.strip_suffix(']')) {
        header.cpu = Some(cpu.parse().ok()?);
        (own, rest) = word(rest)?;
    }
    if let Some(time) = own.strip_suffix(':').and_then(nanoseconds) {
        header.time = Some(time);
        (own, rest) = word(rest)?;
    }
    if own.starts_with("PERF_RECORD_") {
        header.is_other_record = true;
        return Some(header);
    }
    if let Ok(period) = own.parse() {
        header.period = Some(period);
        (own, rest) = word(rest)?;
    }
    header.event = own.strip_suffix(':').filter(|event| !event.is_empty())?;
    // A number is no event: it is a time that cannot be read.
    if header
        .event
        .starts_with(|first: char| first.is_ascii_digit())
    {
        return None;
    }
    header.rest = rest.trim();
    Some(header)
}

/// Reads seconds with six or nine decimals.
fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, decimals) = text.split_once('.')?;
    if decimals.is_empty() || decimals.len() > 9 {
        return None;
    }
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds) || !digits(decimals) {
        return None;
    }
    let scale = 10_u64.pow(9 - u32::try_from(decimals.len()).ok()?);
    let below = decimals.parse::<u64>().ok()? * scale;
    let seconds: u64 = seconds.parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(below)
}

/// Reads a frame: `ADDRESS SYMBOL+0xOFFSET (MODULE)`.
pub(super) fn frame(line: &str) -> Option<Frame<'_>> {
    let (address, rest) = word(line)?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let rest = rest.trim();
    let (named, module) = split_module(rest);
    let symbol = match named.rsplit_once("+0x") {
        Some((symbol, offset)) if offset.bytes().all(|byte| byte.is_ascii_hexdigit()) => symbol,
        _ => named,
    };
    Some(Frame {
        address,
        symbol,
        with_offset: named,
        module: match module {
            "inlined" | "[unknown]" => "",
            module => module,
        },
        is_inlined: module == "inlined",
    })
}

/// Splits `main+0x1 (/bin/a (deleted))` into symbol and module.
fn split_module(text: &str) -> (&str, &str) {
    let Some(inside) = text.strip_suffix(')') else {
        return (text, "");
    };
    let before = inside.strip_suffix(" (deleted)").unwrap_or(inside);
    match before.rfind(" (") {
        Some(at) => {
            let module = &inside[at + 2..];
            // perf's field `dsoff` adds the offset in the file.
            let module = match module.rsplit_once("+0x") {
                Some((path, offset)) if offset.bytes().all(|byte| byte.is_ascii_hexdigit()) => path,
                _ => module,
            };
            (text[..at].trim_end(), module)
        }
        None => match inside.strip_prefix('(') {
            Some(module) => ("", module),
            None => (text, ""),
        },
    }
}

/// The place in the source that perf's field `srcline` puts on a line of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source<'a> {
    /// `file.c:12`.
    Line(&'a str, u32),
    /// `libc.so.6[27305]` or `??:0`: perf does not know it.
    Unknown,
}

/// Reads the place of a frame in the source.
pub(super) fn source(line: &str) -> Option<Source<'_>> {
    let text = line.trim();
    if let Some((_, address)) = text
        .strip_suffix(']')
        .and_then(|text| text.rsplit_once('['))
    {
        let is_hex = address.bytes().all(|byte| byte.is_ascii_hexdigit());
        return (is_hex && !address.is_empty()).then_some(Source::Unknown);
    }
    let (file, line) = text.rsplit_once(':')?;
    // perf adds a remark about code that has several origins.
    let (line, _) = line.split_once(" (discriminator").unwrap_or((line, ""));
    match (file, line.parse().ok()?) {
        ("??", _) | (_, 0) => Some(Source::Unknown),
        (file, line) => Some(Source::Line(file, line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_with_and_without_fields() {
        let found = header("Web Content 2 1234/1236 [003] 12.000345: 500250 cpu-clock:pppH: ");
        let expected = Header {
            comm: "Web Content 2",
            pid: 1234,
            tid: 1236,
            cpu: Some(3),
            time: Some(12_000_345_000),
            period: Some(500_250),
            event: "cpu-clock:pppH",
            ..Header::default()
        };
        assert_eq!(found, Some(expected));
        let found =
            header("swapper     0  7.123456789: cycles:  ffffffff81000000 a+0x1 (b)").unwrap();
        assert_eq!((found.comm, found.pid, found.cpu), ("swapper", 0, None));
        assert_eq!((found.time, found.period), (Some(7_123_456_789), None));
        assert_eq!(found.rest, "ffffffff81000000 a+0x1 (b)");
        let found = header("kworker/0:1-ev 12 sched:sched_switch: prev_comm=a prev_pid=1").unwrap();
        assert_eq!((found.comm, found.pid), ("kworker/0:1-ev", 12));
        assert_eq!(found.event, "sched:sched_switch");
        let found =
            header("a 12 1.000001: PERF_RECORD_MMAP2 12/12: [0x1(0x2) @ 0 0:0 0 0]: r-xp /a");
        assert!(found.unwrap().is_other_record);
        for wrong in [
            "",
            "main;foo 12",
            "a 12",
            "a 12 99999999999999999999.000001: 1 cycles:",
        ] {
            assert_eq!(header(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn frames_with_all_kinds_of_modules() {
        let parts = |line| {
            let frame = frame(line).unwrap();
            (frame.address, frame.symbol, frame.module)
        };
        assert_eq!(
            parts("\t  401136 foo(int, char (*)(int))+0x1f (/bin/a b)"),
            (0x401136, "foo(int, char (*)(int))", "/bin/a b")
        );
        assert_eq!(
            parts("  7f00 [unknown] (/tmp/a (deleted))"),
            (0x7f00, "[unknown]", "/tmp/a (deleted)")
        );
        assert_eq!(
            parts("ffffffff81 x ([kernel.kallsyms])").2,
            "[kernel.kallsyms]"
        );
        assert_eq!(parts("12 [unknown] ([unknown])").2, "");
        assert_eq!(parts("12 f+0x3 (/bin/a+0x1136)").2, "/bin/a");
        assert_eq!(parts("12 operator+ (/bin/a)").1, "operator+");
        assert!(frame("401136 step+0x1 (inlined)").unwrap().is_inlined);
        assert_eq!(frame("inline.c:23"), None);
        assert_eq!(source("  inline.c:23"), Some(Source::Line("inline.c", 23)));
        let remark = source("a.c:7 (discriminator 3)");
        assert_eq!(remark, Some(Source::Line("a.c", 7)));
        assert_eq!(source("  libc.so.6[27305]"), Some(Source::Unknown));
        assert_eq!(source("  ??:0"), Some(Source::Unknown));
        assert_eq!(source("  main[x]"), None);
    }
}
