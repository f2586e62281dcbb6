//! Final state: nothing is in a context, and all tags are free.

use super::{Verdict, broken, rules};
use crate::runtime::hctx::Hctx;
use forebay_core::TagSet;

/// Checks one hardware context.
pub(crate) fn hctx(at: usize, hctx: &Hctx) -> Verdict {
    if hctx.run.is_running() {
        let what = format!("the token of context {at} is taken");
        return broken(rules::DRAINED, what);
    }
    inner(at, hctx)
}

/// Checks the inner part of a hardware context.
pub(crate) fn inner(at: usize, hctx: &Hctx) -> Verdict {
    let inner = hctx.inner.borrow();
    let Some(inner) = &*inner else { return Ok(()) };
    let nr_bios = inner.core.check_invariants();
    let (free, nr_requests) = (inner.core.nr_free_tags(), inner.nr_requests);
    // Requests that were given up may be left when a disk is closed (H5).
    let is_left = inner.core.has_only_given_up();
    let is_empty = hctx.inbox.borrow().is_empty() && (is_left || inner.driver.is_idle());
    let free = if is_left { free + inner.core.nr_given_up_tags() } else { free };
    if nr_bios > 0 || free < nr_requests || !is_empty {
        let what = format!(
            "context {at} has {nr_bios} bios, {free} of {nr_requests} tags are free; its inbox and \
             driver are empty: {is_empty}"
        );
        return broken(rules::DRAINED, what);
    }
    Ok(())
}

/// Checks the budget.
pub(crate) fn budget(tags: &TagSet, nr_waiting: usize) -> Verdict {
    match tags.nr_free() == tags.depth() && nr_waiting == 0 {
        true => Ok(()),
        false => broken(
            rules::DRAINED,
            format!(
                "{} of {} tags of the budget are free, {nr_waiting} wait",
                tags.nr_free(),
                tags.depth()
            ),
        ),
    }
}
