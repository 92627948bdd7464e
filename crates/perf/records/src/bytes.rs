//! Reading integers of either byte order from record bodies: total functions, no copies.

/// The byte order of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first, as on x86-64 and most arm64 systems.
    Little,
    /// Most significant byte first, as on s390x or big-endian PowerPC.
    Big,
}

impl ByteOrder {
    /// The order of the machine that this code runs on.
    pub const NATIVE: ByteOrder = if cfg!(target_endian = "little") {
        ByteOrder::Little
    } else {
        ByteOrder::Big
    };

    /// Reads a `u16` in this order.
    #[inline]
    pub fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            ByteOrder::Little => u16::from_le_bytes(bytes),
            ByteOrder::Big => u16::from_be_bytes(bytes),
        }
    }

    /// Reads a `u32` in this order.
    #[inline]
    pub fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        }
    }

    /// Reads a `u64` in this order.
    #[inline]
    pub fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            ByteOrder::Little => u64::from_le_bytes(bytes),
            ByteOrder::Big => u64::from_be_bytes(bytes),
        }
    }
}

/// A place in borrowed bytes from which integers are taken one after the other.
///
/// Every method returns `None` when too few bytes are left, and then takes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    order: ByteOrder,
}

impl<'a> Cursor<'a> {
    /// Starts at the first of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8], order: ByteOrder) -> Self {
        Cursor { bytes, order }
    }

    /// Returns the bytes that have not been taken yet.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the byte order in which integers are read.
    #[inline]
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// Takes `length` bytes.
    #[inline]
    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(*taken)
    }

    /// Takes a `u16`.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(|bytes| self.order.u16(bytes))
    }

    /// Takes a `u32`.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(|bytes| self.order.u32(bytes))
    }

    /// Takes a `u64`.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(|bytes| self.order.u64(bytes))
    }

    /// Takes `count` consecutive `u64`s without reading them.
    #[inline]
    pub fn u64s(&mut self, count: u64) -> Option<U64s<'a>> {
        let length = usize::try_from(count).ok()?.checked_mul(8)?;
        let order = self.order;
        self.take(length).map(|bytes| U64s { bytes, order })
    }

    /// Takes bytes up to and without the first NUL, or all that is left.
    pub fn c_string(&mut self) -> &'a [u8] {
        let end = self
            .bytes
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(self.bytes.len());
        let text = &self.bytes[..end];
        self.bytes = self.bytes.get(end + 1..).unwrap_or_default();
        text
    }
}

/// Consecutive 64-bit integers in borrowed bytes, of any alignment and either byte order.
#[derive(Clone, Copy)]
pub struct U64s<'a> {
    bytes: &'a [u8],
    order: ByteOrder,
}

impl<'a> U64s<'a> {
    /// Views `bytes` as integers; up to seven bytes at the end that fill none are left out.
    pub fn new(bytes: &'a [u8], order: ByteOrder) -> Self {
        U64s {
            bytes: &bytes[..bytes.len() & !7],
            order,
        }
    }

    /// Returns the number of integers.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() / 8
    }

    /// Returns true if there are no integers.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the integer at `index`, counted from zero.
    #[inline]
    pub fn get(&self, index: usize) -> Option<u64> {
        let start = index.checked_mul(8)?;
        let chunk = self.bytes.get(start..)?.first_chunk::<8>()?;
        Some(self.order.u64(*chunk))
    }

    /// Iterates over all integers, first to last.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + use<'a> {
        let order = self.order;
        let (chunks, _) = self.bytes.as_chunks::<8>();
        chunks.iter().map(move |chunk| order.u64(*chunk))
    }

    /// Returns the bytes that hold the integers, in the recording's byte order.
    #[inline]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl std::fmt::Debug for U64s<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.iter().map(|value| format!("{value:#x}")))
            .finish()
    }
}

impl PartialEq for U64s<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}
