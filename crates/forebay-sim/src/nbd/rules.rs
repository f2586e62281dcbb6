//! The rules of what clients see. The report of a broken rule begins with its name.

pub(crate) const N1: &str = "N1: what the server sends is a stream of messages, in step";
pub(crate) const N2: &str = "N2: each request is answered once, under its own cookie";
pub(crate) const N3: &str = "N3: a read brings each byte once, from its place, and no others";
pub(crate) const N4: &str =
    "N4: what is illegal is refused with its error, and what is legal is not";
pub(crate) const N5: &str = "N5: a connection is closed when it has to be, and not before";
pub(crate) const N6: &str = "N6: who is served gets to its end";
pub(crate) const N7: &str = "N7: of a connection that has ended nothing is left";
pub(crate) const P2: &str = "P2: what was acknowledged as durable is there after a crash";
pub(crate) const P3: &str = "P3: each sector is a register";
