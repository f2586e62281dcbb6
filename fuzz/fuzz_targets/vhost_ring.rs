//! Fuzzes rings in the memory of a guest. Each request that the ring returns is inside the memory,
//! each head is taken once, and a ring that is malformed returns an error.
//!
//! An input is the features, and descriptors, entries and indices. Most addresses are moved into
//! the memory, so that chains get long.

#![no_main]

use forebay_front::blk::GuestBytes;
use forebay_fuzz::{Feature, reach, start};
use forebay_vhost_user::{GuestMemory, Ring, RingError, RingSetup};
use libfuzzer_sys::fuzz_target;
use std::cell::LazyCell;
use std::os::fd::OwnedFd;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

const WANTED: &[Feature] = &[
    ("taken", 0),
    ("taken", 1),
    ("no-status", 0),
    ("indirect", 0),
    ("error", 0),
    ("error", 1),
    ("error", 2),
    ("error", 3),
    ("error", 4),
];

const SIZE: u16 = 16;
const BASE: u64 = 0x10_0000;
const AVAILABLE: u64 = BASE + 0x1000;
const USED: u64 = BASE + 0x2000;
const TABLE: u64 = BASE + 0x3000;
/// Two regions side by side, and one behind a hole.
const LEN: u64 = 0x8000;
const REGIONS: [u64; 3] = [BASE, BASE + LEN, BASE + 4 * LEN];

const INDIRECT: u64 = 1 << 28;
const EVENT_IDX: u64 = 1 << 29;

/// Writes one descriptor of 16 bytes.
fn describe(memory: &GuestMemoryMmap, at: u64, bytes: &[u8]) {
    let mut bytes: [u8; 16] = bytes.try_into().expect("16 bytes");
    // One address in eight is raw.
    if bytes[7] & 7 != 0 {
        let near = u64::from(u16::from_le_bytes([bytes[0], bytes[1]])) * 3;
        bytes[..8].copy_from_slice(&(BASE + near).to_le_bytes());
        bytes[10] &= 1;
        bytes[11] = 0;
    }
    if bytes[15] & 7 != 0 {
        (bytes[13], bytes[14], bytes[15]) = (0, bytes[14] % (SIZE as u8 + 1), 0);
    }
    memory.write_slice(&bytes, GuestAddress(at)).expect("in memory");
}

fn setup(memory: &GuestMemory, features: u64, base: u16) -> RingSetup {
    let kick: OwnedFd = std::fs::File::open("/dev/null").expect("a descriptor").into();
    RingSetup {
        size: SIZE,
        descriptors: BASE,
        available: AVAILABLE,
        used: USED,
        base,
        features,
        memory: memory.clone(),
        kick,
        call: None,
        err: None,
        inflight: None,
        is_enabled: true,
    }
}

fn note(error: &RingError) {
    let number = match error {
        RingError::Chain { .. } => 0,
        RingError::Outside { .. } => 1,
        RingError::IndexJump { .. } => 2,
        RingError::BadHead { .. } => 3,
        RingError::HeadInFlight(_) => 4,
        _ => 5,
    };
    reach("error", number);
}

fn run(memory: &GuestMemory, data: &[u8]) {
    let [features, base, index, data @ ..] = data else { return };
    let mut bits = 0;
    bits |= if features & 1 != 0 { INDIRECT } else { 0 };
    bits |= if features & 2 != 0 { EVENT_IDX } else { 0 };
    let (base, regions) = (u16::from(*base) << 8, memory.regions());
    let (entries, data) = data.split_at(data.len().min(2 * usize::from(SIZE)));
    regions.write_slice(&[0; 64], GuestAddress(AVAILABLE)).expect("in memory");
    regions.write_slice(entries, GuestAddress(AVAILABLE + 4)).expect("in memory");
    let index = base.wrapping_add(u16::from(*index % 20));
    regions.write_obj(index.to_le(), GuestAddress(AVAILABLE + 2)).expect("in memory");
    for (nr, bytes) in data.chunks_exact(16).take(32).enumerate() {
        let (at, nr) = if nr < 16 { (BASE, nr) } else { (TABLE, nr - 16) };
        describe(regions, at + 16 * nr as u64, bytes);
    }
    let ring = Ring::start(setup(memory, bits, base)).map_err(|(error, _)| error);
    let mut ring = ring.expect("the ring is in the memory");
    let mut taken = Vec::new();
    for _ in 0..=SIZE {
        match ring.take() {
            Ok(Some(chain)) => {
                reach("taken", u64::from(chain.has_status));
                assert!(!taken.contains(&chain.head), "a head is taken once");
                let both = [&chain.readable, &chain.writable];
                let len: u64 = both.into_iter().flatten().map(GuestBytes::len).sum();
                if bits & INDIRECT != 0 && len > 4096 {
                    reach("indirect", 0);
                }
                if !chain.has_status {
                    reach("no-status", 0);
                }
                taken.push(chain.head);
                if let Some(mut readable) = chain.readable {
                    readable.take_front(&mut vec![0; readable.len().min(1 << 16) as usize]);
                    ring.recycle(readable);
                }
                if let Some(mut writable) = chain.writable {
                    // The driver's own buffers may be the ring itself.
                    writable.fill_front(&vec![0x5a; writable.len().min(1 << 12) as usize]);
                    ring.recycle(writable);
                }
            }
            Ok(None) => break,
            Err(error) => {
                note(&error);
                break;
            }
        }
    }
    for head in taken {
        ring.put(head, 0, 1);
    }
    let _ = ring.enable_notifications();
    ring.notify();
}

thread_local! {
    static MEMORY: LazyCell<GuestMemory> = LazyCell::new(|| {
        let ranges = REGIONS.map(|start| (GuestAddress(start), LEN as usize));
        GuestMemory::new(GuestMemoryMmap::from_ranges(&ranges).expect("memory"))
    });
}

fn seeds() -> Vec<Vec<u8>> {
    let descriptor = |addr: u16, len: u16, flags: u8, next: u8| {
        let (addr, len) = (addr.to_le_bytes(), len.to_le_bytes());
        [&addr[..], &[0, 0, 0, 0, 0, 1], &len, &[0, 0, flags, 0, next, 1]].concat()
    };
    let one = |features: u8, head: u8, descriptors: &[Vec<u8>]| {
        let mut entries = [0; 32];
        entries[0] = head;
        [&[features, 0, 1][..], &entries, &descriptors.concat()].concat()
    };
    let good =
        [descriptor(0x1400, 16, 1, 1), descriptor(0x1500, 512, 3, 2), descriptor(9, 1, 2, 0)];
    let mut table = vec![descriptor(0x1000, 48, 4, 0); 16];
    table.extend(good.clone());
    vec![
        one(0, 0, &good),
        one(2, 1, &good),
        one(1, 3, &table),
        one(0, 99, &good),
        one(0, 0, &[descriptor(0x1400, 16, 0, 0)]),
    ]
}

fuzz_target!(init: start(WANTED, &seeds(), ""), |data: &[u8]| {
    MEMORY.with(|memory| run(memory, data));
});
