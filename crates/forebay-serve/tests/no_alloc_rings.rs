//! No allocation per request of a virtual machine, with many segments or with one.

#[path = "../../forebay/tests/support/counting.rs"]
mod counting;
#[path = "rings/guest.rs"]
mod guest;

use forebay_serve::Options;
use guest::{DATA, Guest, options, serve, serve_with};
use vm_memory::{Bytes, GuestAddress};

/// Segments of each of the two requests in flight.
const NR_SEGMENTS: u16 = 120;
const FIRST: [u16; 2] = [0, 128];

/// Writes and reads the same data, each as two requests of many segments.
fn pass(guest: &mut Guest, nr_rounds: u64, nr_segments: u16) {
    for round in 0..nr_rounds {
        for is_write in [true, false] {
            for first in FIRST {
                let sector = 128 * u64::from(first / 128) + round % 8;
                let data = DATA + u64::from(first) * 4096;
                guest.request(first, is_write, sector, (data, nr_segments));
            }
            guest.kick();
            guest.wait();
            assert_eq!(FIRST.map(|first| guest.status(first)), [0; 2]);
        }
    }
}

#[test]
fn no_request_of_a_ring_allocates_once_it_is_warm() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch folder");
    let path = folder.path().join("disk.img");
    std::fs::write(&path, vec![0; 1 << 20]).expect("a scratch file");
    let file = format!("{}?direct=off", path.display());
    let direct = format!("{}?direct=on&engine=io_uring", path.display());
    let connect = || Guest::connect(&folder.path().join("0"));
    for spec in ["ram:1M", &file] {
        serve(folder.path(), &[spec], None, || check(&mut connect(), spec));
    }
    let registering = Options { register_memory: true, ..options(folder.path(), &[&direct], None) };
    serve_with(registering, || check(&mut connect(), &direct));
}

/// Checks that no request of this guest allocates.
fn check(guest: &mut Guest, spec: &str) {
    let mut data = [0_u8; 4096];
    data.iter_mut().zip(0..).for_each(|(byte, nr): (_, u32)| *byte = nr as u8);
    guest.write(DATA, &data);
    for nr_segments in [NR_SEGMENTS, 1] {
        pass(guest, 200, nr_segments);
        counting::start();
        pass(guest, 500, nr_segments);
        let nr_allocations = counting::stop();
        assert_eq!(nr_allocations, 0, "{spec}, requests of {nr_segments} segments");
    }
    let mut found = [0_u8; 4096];
    guest.memory.read_slice(&mut found, GuestAddress(DATA)).expect("in memory");
    assert!(found == data, "{spec}: other data");
    assert_eq!(guest.stop(), 2 * 2 * 2 * 700);
    // A ring that has stopped does not touch its memory.
    guest.truncate(0);
}
