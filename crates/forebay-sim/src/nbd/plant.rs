//! Planted bugs of the device and of a peer, which the checkers must find. Those of the server are
//! in `forebay-front`, in the code that ships.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdPlant {
    /// A chunk of data is sent as a hole.
    FalseHole,
    /// The device's flush makes nothing durable.
    LieFlush,
}

impl NbdPlant {
    /// All planted bugs.
    pub const ALL: [NbdPlant; 2] = [NbdPlant::FalseHole, NbdPlant::LieFlush];
}
