//! I/O on drivers without descriptors, small enough for Miri, which follows the memory of requests
//! through the public contract.

use super::open;
use forebay::{Buf, Io};
use std::thread;

const PAGE: usize = 512;

#[test]
fn blocking_calls_of_two_threads_move_their_data() {
    for name in ["driver_at_once", "driver_wrapped"] {
        let disk = open(name, 16 << 10, "nr_hw_queues=1");
        thread::scope(|scope| {
            for number in 0..2_u8 {
                let disk = &disk;
                scope.spawn(move || {
                    let at = u64::from(number) * PAGE as u64;
                    let mut page = [number + 1; PAGE];
                    assert_eq!(disk.write_at(&page, at), Ok(PAGE));
                    page.fill(0);
                    assert_eq!(disk.read_at(&mut page, at), Ok(PAGE));
                    assert_eq!(page, [number + 1; PAGE]);
                });
            }
        });
    }
}

#[test]
fn queue_that_is_dropped_leaves_no_memory_to_the_driver() {
    let disk = open("driver_list", 16 << 10, "nr_hw_queues=2");
    let mut queue = disk.queue();
    for n in 0..8 {
        queue.submit(Io::write(Buf::from(&[7; PAGE][..]), n * 1024)).expect("room");
    }
    drop(queue);
    let mut page = [0; PAGE];
    assert_eq!(disk.read_at(&mut page, 3 * 1024), Ok(PAGE));
    assert_eq!(page, [7; PAGE]);
}
