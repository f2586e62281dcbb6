//! Numbers and structures of the virtio-blk protocol, all little-endian.

/// The unit of addresses and lengths, bytes.
pub const SECTOR: u64 = 512;
/// Length of the serial number, bytes.
pub const ID_LEN: usize = 20;
/// Most ranges of one DISCARD or WRITE_ZEROES.
pub const RANGES_MAX: usize = 16;

/// Length of the header of a request, bytes.
pub const HEADER_LEN: usize = 16;
/// Length of one range, bytes.
pub(super) const RANGE_LEN: usize = 16;

/// Feature bits that a session reads.
pub(super) const F_FLUSH: u64 = 1 << 9;
pub(super) const F_DISCARD: u64 = 1 << 13;
pub(super) const F_WRITE_ZEROES: u64 = 1 << 14;

/// Status of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Ok = 0,
    IoError = 1,
    Unsupported = 2,
}

/// Type of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    In,
    Out,
    Flush,
    GetId,
    Discard,
    WriteZeroes,
}

/// Header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// `None`: unknown.
    pub(super) kind: Option<Type>,
    pub(super) sector: u64,
}

impl Header {
    #[inline]
    pub(super) fn parse(bytes: [u8; HEADER_LEN]) -> Header {
        let [k0, k1, k2, k3, _, _, _, _, sector @ ..] = bytes;
        let kind = match u32::from_le_bytes([k0, k1, k2, k3]) {
            0 => Some(Type::In),
            1 => Some(Type::Out),
            4 => Some(Type::Flush),
            8 => Some(Type::GetId),
            11 => Some(Type::Discard),
            13 => Some(Type::WriteZeroes),
            _ => None,
        };
        Header { kind, sector: u64::from_le_bytes(sector) }
    }
}

/// One range of a DISCARD or a WRITE_ZEROES.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) sector: u64,
    pub(super) nr_sectors: u32,
    pub(super) unmap: bool,
    /// Whether reserved flags are set.
    pub(super) has_unknown_flags: bool,
}

impl Range {
    pub(super) fn parse(bytes: [u8; RANGE_LEN]) -> Range {
        let [s0, s1, s2, s3, s4, s5, s6, s7, n0, n1, n2, n3, flags @ ..] = bytes;
        let flags = u32::from_le_bytes(flags);
        Range {
            sector: u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
            nr_sectors: u32::from_le_bytes([n0, n1, n2, n3]),
            unmap: flags & 1 != 0,
            has_unknown_flags: flags & !1 != 0,
        }
    }
}
