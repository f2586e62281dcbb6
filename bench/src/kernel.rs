//! The figure `sched-kernel`: our schedulers compared with those of a Linux kernel in a guest.
//!
//! - `order`: the sequence in which the same requests are served;
//! - `loads`: the same jobs on the same modelled devices in real time;
//! - `guest`: the guest, its kernel and its script.

mod guest;
mod loads;
mod order;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

use crate::Options;
use crate::table::machine;

/// The name that selects this table.
pub(crate) const NAME: &str = "sched-kernel";

/// The name that selects the order of service only.
pub(crate) const ORDER_NAME: &str = "sched-order";

/// Measures everything, and returns the page.
pub(crate) fn render(forebay: &Path, options: &Options) -> Result<String> {
    let mut text = String::from("# Schedulers beside those of a kernel\n\n");
    let (order, kernel) = order::render(forebay)?;
    writeln!(
        text,
        "Written by `{}{}`. Machine: {}. Kernel of the guest: Linux {}, with one processor that \
         QEMU {} emulates. Its disk is a modelled device of `forebay serve`, by vhost-user-blk, \
         without a scheduler there. Forebay's own schedulers run on the machine, on the same \
         model.\n",
        if guest::has_other_kernel() { "FOREBAY_GUEST_KERNEL=FOLDER " } else { "" },
        options.command(),
        machine(),
        kernel,
        guest::qemu_version()?,
    )?;
    text.push_str(&order);
    if options.names != [ORDER_NAME] {
        loads::render(&mut text, forebay, options)?;
    }
    Ok(text)
}
