//! The rules that guests check. The report of a broken rule begins with its text. The rules of the
//! sessions, Y1 to Y4, are those of `forebay_front::blk`.

pub(crate) const X1: &str = "X1: each request of a ring is answered once, under its own head";
pub(crate) const X2: &str =
    "X2: a bad request gets its status, and a good one fails only if the disk does";
pub(crate) const X3: &str = "X3: a guest that is served finishes";
pub(crate) const X4: &str = "X4: a ring that has stopped leaves nothing behind";
pub(crate) const Y1: &str =
    "Y1: a ring stops if a request cannot be answered, and for nothing less";
pub(crate) const Y3: &str =
    "Y3: each available request is taken, and notifications announce others";
pub(crate) const Y4: &str =
    "Y4: a driver is notified once in rounds that follow each other, or when it waits too long";
