//! I/O priority of an export. I/Os of different priorities do not merge, so an I/O beside the
//! request of a client shows the priority of that request.

use crate::config::Limits;
use crate::tenant::Tenant;
use crate::worker::driven::{Driven, is_answered, send};
use forebay::{Buf, Class, Io, Op, Priority};
use std::sync::Arc;

const READ: u16 = 0;
const BLOCK: u32 = 512;

/// Returns the number of requests for a read of this priority and one of a client behind it.
fn requests(priority: Priority, of_export: Priority) -> u64 {
    let spec = "ram:1M?scheduler=mq-deadline";
    let mut driven = Driven::new(spec, Limits::default(), |export| {
        export.tenant = Arc::new(Tenant::new(&export.disk, "", of_export));
    });
    let mut client = driven.connect();
    let held = driven.disk.quiesce();
    let mut queue = driven.disk.queue();
    let io = Io::read(Buf::new(BLOCK as usize), 0).priority(priority.class(), priority.level());
    queue.submit(io).unwrap();
    queue.reap(0, 1, &mut Vec::new());
    send(&mut client, READ, BLOCK.into(), BLOCK);
    driven.round();
    drop(held);
    queue.reap(1, 1, &mut Vec::new());
    while !is_answered(&mut client, BLOCK as usize) {
        driven.round();
    }
    driven.disk.stats().queue.op(Op::Read).requests
}

#[test]
fn requests_of_clients_have_the_priority_of_their_export() {
    let usual = Priority::default();
    let high = Priority::new(Class::RealTime, 3).unwrap();
    assert_eq!(requests(usual, usual), 1);
    assert_eq!(requests(high, high), 1);
    assert_eq!(requests(usual, high), 2);
    assert_eq!(requests(high, usual), 2);
}
