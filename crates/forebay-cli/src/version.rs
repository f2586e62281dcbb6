//! The long form of `forebay --version`.

use std::sync::LazyLock;

use forebay::DRIVER_NAMES;

/// Whether the program is linked statically. Such a program can load no library, so it lacks
/// `forebay run` and the driver `rbd`.
pub(crate) const IS_STATIC: bool = cfg!(target_feature = "crt-static");

/// Returns the version, the commit, and what the build contains.
pub(crate) fn long() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let drivers = DRIVER_NAMES.into_iter().filter(|name| !(IS_STATIC && *name == "rbd"));
        let features = match IS_STATIC {
            true => "tls, usdt, vhost-user",
            false => "rbd, run, tls, usdt, vhost-user",
        };
        format!(
            "{}\ncommit: {}\ndrivers: {}\nengines of files: io_uring, aio, psync\n\
             features: {features}\ntarget: {}\nrustc: {}",
            env!("CARGO_PKG_VERSION"),
            env!("FOREBAY_COMMIT"),
            drivers.collect::<Vec<_>>().join(", "),
            env!("FOREBAY_TARGET"),
            env!("FOREBAY_RUSTC"),
        )
    });
    &TEXT
}
