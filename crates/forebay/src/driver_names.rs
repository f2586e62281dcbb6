//! Names of the drivers, as specs and messages have them.

/// Names of the library's drivers, as specs have them. Those of optional features are among them.
// `DRIVERS` in `driver/mod.rs` has a function for each.
pub const ALL: [&str; 10] =
    ["null", "ram", "model", "file", "aio", "psync", "nbd", "vhost-user", "rbd", "fault"];

/// Returns the name of the driver as a static string, or `None` if there is no such driver.
pub(crate) fn find(name: &str) -> Option<&'static str> {
    ALL.into_iter().find(|known| *known == name)
}

/// Returns the names of all drivers, for messages.
pub(crate) fn list() -> String {
    ALL.join(", ")
}
