//! Parts of split bios keep their origin. The order in which a scheduler serves the classes shows
//! it.

use crate::common::{Bench, limits};
use forebay_core::{Bio, Class, Op, Origin, Policy, Priority, SchedulerPolicy};

const K4: u64 = 4096;

/// Returns a context with one request at a time at the device.
fn bench() -> Bench {
    let policy = Policy::default().queue_depth(16).scheduler(SchedulerPolicy::MqDeadline);
    Bench::new(limits().max_sectors(16), policy.nr_requests(Some(16)).device_depth(Some(1)))
}

impl Bench {
    /// Queues a read of these pages with a class in the plug.
    fn plug_of(&mut self, class: Class, page: u64, nr: u64) {
        let origin = Origin::NONE.with_priority(Priority::new(class, 4).expect("a level"));
        let bio = Bio { origin, ..self.bio(Op::Read, page * K4, nr * K4, page) };
        self.queue_bio(bio, 1);
    }
}

#[test]
fn parts_of_a_split_bio_have_its_class() {
    for (class, expected) in
        [(Class::RealTime, [100, 0, 2, 4, 50, 60]), (Class::Idle, [100, 50, 60, 0, 2, 4])]
    {
        let mut bench = bench();
        bench.plug_of(Class::RealTime, 100, 1);
        bench.unplug();
        bench.plug_of(Class::BestEffort, 50, 1);
        bench.plug_of(class, 0, 6);
        bench.plug_of(Class::BestEffort, 60, 1);
        bench.unplug();
        bench.finish();
        assert_eq!(bench.first_pages(), expected, "{class:?}");
    }
}
