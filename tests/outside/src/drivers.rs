//! Drivers outside Forebay's workspace: a disk in memory, in each way to wait, and a wrapper.

#[path = "../../../crates/forebay/tests/support/own_driver.rs"]
mod own_driver;

use crate::{LEN, limits};
use forebay::testing::Subject;
use forebay::{BlockStatus, Buf, Disk, Io, OpenError, Policy};
use own_driver::{Counted, OwnDriver, Way};
use std::error::Error;

pub fn run() -> Result<(), Box<dyn Error>> {
    for way in [Way::AtOnce, Way::List, Way::Pipe] {
        println!("outside: a driver that waits by {way:?}");
        let subject = Subject::new(|setup| {
            let driver = OwnDriver::new(setup.limits(limits()), way);
            Disk::with_driver(driver, setup.policy()).expect("a disk")
        });
        let subject = subject.with_failing_block(8192, BlockStatus::Medium, |setup| {
            let driver = OwnDriver::new(setup.limits(limits()), way).with_bad_block(8192);
            Disk::with_driver(driver, setup.policy()).expect("a disk")
        });
        subject.check();
    }
    let wrapper = Counted::new(OwnDriver::new(limits(), Way::List));
    let nr = wrapper.nr();
    use_disk(&Disk::with_driver(wrapper, Policy::default())?)?;
    assert!(*nr.lock().unwrap() >= 2);
    let odd = OwnDriver::new(limits().capacity_bytes(Some(1000)), Way::AtOnce);
    let refused = Disk::with_driver(odd, Policy::default());
    assert!(matches!(refused, Err(OpenError::Capacity { bytes: 1000, .. })));
    println!("outside: a driver of {LEN} bytes works");
    Ok(())
}

fn use_disk(disk: &Disk) -> Result<(), Box<dyn Error>> {
    assert_eq!(disk.info().spec, "driver:own");
    let (mut queue, mut done) = (disk.queue(), Vec::new());
    for nth in 0..16_u8 {
        queue.submit(Io::write(Buf::from(&[nth; 512][..]), u64::from(nth) * 1024))?;
    }
    queue.reap(16, 16, &mut done);
    assert!(done.len() == 16 && done.iter().all(|io| io.result == Ok(512)));
    let mut read = [0; 512];
    disk.read_at(&mut read, 7 * 1024)?;
    assert_eq!(read, [7; 512]);
    Ok(())
}
