//! The rules of the adaptive hold, as this world checks them.

pub(super) const I7: &str = "I7: a held bio continues its stream, and carries no flag";
pub(super) const I8: &str =
    "I8: a bio is held while others of its program are outstanding and the device is busy";
pub(super) const I9: &str =
    "I9: held bios are passed on in order, before their age, number and size exceed the limits";
pub(super) const I10: &str =
    "I10: held bios are passed on when the device is idle and at the end of a plug";
