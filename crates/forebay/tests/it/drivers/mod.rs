//! Disks on drivers that the tests define.
//!
//! - [`misbehaving`]: drivers that break the rules that the layer checks;
//! - [`missed_events`]: a driver whose waits miss an event;
//! - [`small`]: I/O that Miri can follow from the caller to the driver and back;
//! - [`broken`]: devices that break the other rules, which the checks of the library find.

mod broken;
mod misbehaving;
mod missed_events;
mod small;

use crate::backends::options::options_of;
use crate::backends::{limits_of, policy_of};
use crate::own_driver::{Counted, OwnDriver, Way};
use forebay::driver::{Driver, Facts};
use forebay::testing::Subject;
use forebay::{Disk, FeatureState, OpenError, Policy, QueueLimits};

/// Key of disks whose 4 KiB from 8 KiB on cannot be read.
pub(crate) const BAD_BLOCK: &str = "&bad_block";

/// Opens a disk of `len` bytes on the driver with this name, with keys as in a spec.
pub(crate) fn open(name: &str, len: u64, keys: &str) -> Disk {
    let (limits, policy) = (limits_of(len, keys), policy_of(keys));
    let way = match name {
        "driver_at_once" => Way::AtOnce,
        "driver_pipe" => Way::Pipe,
        _ => Way::List,
    };
    let driver = OwnDriver::new(limits, way);
    let driver = if keys.contains(BAD_BLOCK) { driver.with_bad_block(8192) } else { driver };
    let opened = match name {
        "driver_wrapped" => Disk::with_driver(Counted::new(driver), policy),
        _ => Disk::with_driver(driver, policy),
    };
    opened.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn disk_of_a_driver_has_its_limits_and_its_name() {
    let limits = limits_of(1 << 20, "").fua(false);
    let counted = Counted::new(OwnDriver::new(limits, Way::Pipe));
    let nr = counted.nr();
    let disk = Disk::with_driver(counted, Policy::default()).expect("a disk");
    let info = disk.info();
    assert_eq!((info.spec.as_str(), info.driver), ("driver:own", "driver"));
    assert_eq!(disk.capacity_bytes(), Some(1 << 20));
    let fua = info.features.iter().find(|feature| feature.name == "fua").expect("a feature");
    assert!(matches!(fua.state, FeatureState::Missing(_)), "{fua:?}");
    disk.write_at(&[7; 4096], 0).expect("a write");
    let mut read = [0; 4096];
    disk.read_at(&mut read, 0).expect("a read");
    assert_eq!(read, [7; 4096]);
    assert_eq!(*nr.lock().expect("no panic"), 2);
    assert!(disk.reread_size().is_ok_and(|size| size.is_none()));
}

#[test]
fn drivers_with_a_service_thread_pass_the_checks_of_disks() {
    for way in [Way::AtOnce, Way::List, Way::Pipe] {
        let subject = Subject::new(move |setup| {
            let driver = OwnDriver::new(setup.limits(limits_of(1 << 20, "")), way);
            options_of(setup).service(true).open_driver(driver).expect("a disk")
        });
        subject.check();
    }
}

#[test]
fn driver_with_impossible_limits_is_refused() {
    let odd = QueueLimits::default().capacity_bytes(Some(1000));
    let refused = Disk::with_driver(OwnDriver::new(odd, Way::List), Policy::default());
    assert!(matches!(refused, Err(OpenError::Capacity { bytes: 1000, .. })), "{refused:?}");
}

/// Facts are one value, so a wrapper of a driver has those of the inner one.
#[test]
fn wrapper_has_the_facts_of_its_driver() {
    let inner = OwnDriver::new(limits_of(4096, ""), Way::AtOnce);
    let Facts { name, limits, .. } = inner.facts();
    let wrapper = Counted::new(inner);
    assert_eq!((wrapper.facts().name, wrapper.facts().limits), (name, limits));
}
