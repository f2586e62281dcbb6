//! The rules of what all clients have seen together. The report of a broken rule begins with its
//! text.

pub(crate) const P2: &str = "P2: data acknowledged as durable survives a crash";
pub(crate) const P3: &str = "P3: each sector is a register";
