//! The rules that clients check. The report of a broken rule begins with its text.

pub(crate) const N1: &str = "N1: the server sends a well-formed stream of messages";
pub(crate) const N2: &str = "N2: each request is answered once, under its own cookie";
pub(crate) const N3: &str = "N3: a read brings each byte once, from its place, and no others";
pub(crate) const N4: &str =
    "N4: an illegal request is refused with its error, and a legal one is not refused";
pub(crate) const N5: &str = "N5: a connection is closed when it has to be, and not before";
pub(crate) const N6: &str = "N6: a client that is served finishes its session";
pub(crate) const N7: &str = "N7: a connection that has ended leaves nothing behind";
