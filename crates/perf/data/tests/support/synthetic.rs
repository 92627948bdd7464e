//! Small recordings built byte by byte, in either byte order, with contents that are known.
#![allow(dead_code, reason = "each test binary uses its own part")]

use dioptra_perfrecords::ByteOrder;
use std::io::Write;

/// Bytes in one order.
pub struct Bytes {
    pub order: ByteOrder,
    pub bytes: Vec<u8>,
}

impl Bytes {
    pub fn new(order: ByteOrder) -> Self {
        let bytes = Vec::new();
        Bytes { order, bytes }
    }

    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes.extend(match self.order {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        });
        self
    }

    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes.extend(match self.order {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        });
        self
    }

    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes.extend(match self.order {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        });
        self
    }

    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend(bytes);
        self
    }

    /// Text padded with NULs to a multiple of `align` bytes.
    pub fn text(&mut self, text: &str, align: usize) -> &mut Self {
        let end = self.bytes.len() + (text.len() + 1).next_multiple_of(align);
        self.bytes.extend(text.as_bytes());
        self.bytes.resize(end, 0);
        self
    }

    pub fn record(&mut self, kind: u32, misc: u16, body: &[u8]) -> &mut Self {
        let size = u16::try_from(8 + body.len()).expect("a record's size");
        self.u32(kind).u16(misc).u16(size).raw(body)
    }

    fn part(&self) -> Bytes {
        Bytes::new(self.order)
    }
}

/// Ids of the two events.
pub const IDS: [u64; 2] = [71, 72];

/// A software event of `config` whose attr has `size` bytes: IP, TID, TIME, ID, CPU, PERIOD; sample_id_all.
fn attr(order: ByteOrder, config: u64, size: u32) -> Vec<u8> {
    let mut attr = Bytes::new(order);
    let fields = 1 | 2 | 4 | 1 << 6 | 1 << 7 | 1 << 8;
    attr.u32(1)
        .u32(size)
        .u64(config)
        .u64(1000)
        .u64(fields)
        .u64(4);
    // inherit, mmap, comm, task, sample_id_all: bit-fields start at the top on big-endian machines.
    let flags = 1_u64 << 1 | 1 << 8 | 1 << 9 | 1 << 13 | 1 << 18;
    attr.u64(match order {
        ByteOrder::Little => flags,
        ByteOrder::Big => flags.reverse_bits(),
    });
    attr.bytes.resize(size as usize, 0);
    attr.bytes
}

/// The ids at the end of a record: TID, TIME, ID, CPU.
fn trailer(body: &mut Bytes, time: u64, id: u64) {
    body.u32(100).u32(100).u64(time).u64(id).u32(0).u32(0);
}

/// The records of the recording, out of the order of time as two rings give it.
pub fn records(order: ByteOrder) -> Bytes {
    let mut all = Bytes::new(order);
    let mut comm = all.part();
    comm.u32(100).u32(100).text("program", 8);
    trailer(&mut comm, 0, 0);
    all.record(3, 0, &comm.bytes);
    let mut mmap = all.part();
    mmap.u32(100).u32(100).u64(0x1000).u64(0x2000).u64(0);
    mmap.text("/nowhere/program", 8);
    trailer(&mut mmap, 0, 0);
    all.record(1, 2, &mmap.bytes);
    for round in 0..3_u64 {
        for cpu in 0..2_u32 {
            for step in 0..5_u64 {
                let mut sample = all.part();
                let time = 1_000_000_000 + round * 1000 + step * 10 + u64::from(cpu);
                sample.u64(0x1000 + 16 * step + u64::from(cpu));
                sample.u32(100).u32(100 + cpu).u64(time);
                sample.u64(IDS[(step % 2) as usize]).u32(cpu).u32(0);
                sample.u64(1000 + step);
                all.record(9, 2, &sample.bytes);
            }
        }
        all.record(68, 0, &[]);
    }
    let mut lost = all.part();
    lost.u64(IDS[0]).u64(17);
    trailer(&mut lost, 1_000_002_500, IDS[0]);
    all.record(2, 0, &lost.bytes);
    let mut exit = all.part();
    exit.u32(100).u32(1).u32(100).u32(1).u64(1_000_003_000);
    trailer(&mut exit, 1_000_003_000, IDS[0]);
    all.record(4, 0, &exit.bytes);
    all
}

/// A file with both events; attrs of `attr_size` bytes.
pub fn file(order: ByteOrder, attr_size: u32) -> Vec<u8> {
    let records = records(order);
    let mut hostname = Bytes::new(order);
    hostname.u32(64).text("the-machine", 64);
    let entry = u64::from(attr_size) + 16;
    let ids_at = 104;
    let attrs_at = ids_at + 16;
    let data_at = attrs_at + 2 * entry;
    let mut file = Bytes::new(order);
    file.raw(match order {
        ByteOrder::Little => b"PERFILE2",
        ByteOrder::Big => b"2ELIFREP",
    });
    file.u64(104).u64(entry).u64(attrs_at).u64(2 * entry);
    file.u64(data_at)
        .u64(records.bytes.len() as u64)
        .u64(0)
        .u64(0);
    file.u64(1 << 3).u64(0).u64(0).u64(0);
    file.u64(IDS[0]).u64(IDS[1]);
    for (index, config) in [(0, 0), (1, 2)] {
        file.raw(&attr(order, config, attr_size));
        file.u64(ids_at + 8 * index).u64(8);
    }
    file.raw(&records.bytes);
    let section = file.bytes.len() as u64 + 16;
    file.u64(section)
        .u64(hostname.bytes.len() as u64)
        .raw(&hostname.bytes);
    file.bytes
}

/// A pipe with a section that perf does not know.
pub fn piped_section(order: ByteOrder, section: &[u8]) -> Vec<u8> {
    let mut pipe = Bytes::new(order);
    pipe.raw(&self::pipe(order));
    let mut body = pipe.part();
    body.u64(200).raw(section);
    let end = body.bytes.len().next_multiple_of(8);
    body.bytes.resize(end, 0);
    pipe.record(80, 0, &body.bytes);
    pipe.bytes
}

/// The same as a pipe.
pub fn pipe(order: ByteOrder) -> Vec<u8> {
    let mut pipe = Bytes::new(order);
    pipe.raw(match order {
        ByteOrder::Little => b"PERFILE2",
        ByteOrder::Big => b"2ELIFREP",
    });
    pipe.u64(16);
    for (index, config) in [(0, 0), (1, 2)] {
        let mut body = pipe.part();
        body.raw(&attr(order, config, 112)).u64(IDS[index]);
        pipe.record(64, 0, &body.bytes);
    }
    let mut hostname = pipe.part();
    hostname.u64(3).u32(64).text("the-machine", 64);
    pipe.record(80, 0, &hostname.bytes);
    let records = records(order);
    pipe.raw(&records.bytes);
    pipe.bytes
}

/// A pipe whose records are compressed, cut at `cut` bytes: records straddle.
pub fn compressed_pipe(order: ByteOrder, cut: usize, second_version: bool) -> Vec<u8> {
    let plain = pipe(order);
    let header = plain.len() - records(order).bytes.len();
    let mut pipe = Bytes::new(order);
    pipe.raw(&plain[..header]);
    let packed = zstd::encode_all(&records(order).bytes[..], 3).expect("compressed");
    push_packed(&mut pipe, &packed, cut, second_version);
    pipe.bytes
}

/// A pipe whose compressed data has no known length and asks for a window of `1 << window` bytes; with the level, where
/// one is given.
pub fn wide_window_pipe(window: u32, level: Option<u32>) -> Vec<u8> {
    let order = ByteOrder::NATIVE;
    let plain = pipe(order);
    let header = plain.len() - records(order).bytes.len();
    let mut pipe = Bytes::new(order);
    pipe.raw(&plain[..header]);
    if let Some(level) = level {
        let mut body = pipe.part();
        body.u64(27).u32(1).u32(1).u32(level).u32(3).u32(1 << 20);
        pipe.record(80, 0, &body.bytes);
    }
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).expect("an encoder");
    encoder.window_log(window).expect("a window");
    encoder
        .write_all(&records(order).bytes)
        .and_then(|()| encoder.flush())
        .expect("compressed");
    let packed = encoder.finish().expect("compressed");
    push_packed(&mut pipe, &packed, 1000, false);
    pipe.bytes
}

fn push_packed(pipe: &mut Bytes, packed: &[u8], cut: usize, second_version: bool) {
    for part in packed.chunks(cut) {
        if second_version {
            let mut body = pipe.part();
            body.u64(part.len() as u64).raw(part);
            let end = body.bytes.len().next_multiple_of(8);
            body.bytes.resize(end, 0);
            pipe.record(83, 0, &body.bytes);
        } else {
            pipe.record(81, 0, part);
        }
    }
}

/// The content of a section that perf does not know.
pub const OWN_SECTION: [u8; 301] = [7; 301];

/// One recording of each kind, with a name.
pub fn all() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for (order, name) in [(ByteOrder::Little, "little"), (ByteOrder::Big, "big")] {
        for size in [64, 72, 96, 112, 128, 136] {
            all.push((format!("file-{name}-{size}"), file(order, size)));
        }
        all.push((format!("pipe-{name}"), pipe(order)));
        all.push((
            format!("section-{name}"),
            piped_section(order, &OWN_SECTION),
        ));
        all.push((format!("packed-{name}"), compressed_pipe(order, 33, false)));
        all.push((format!("packed2-{name}"), compressed_pipe(order, 50, true)));
    }
    all
}
