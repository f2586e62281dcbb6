//! Checks of a command when the driver is offered it.

use super::Port;
use crate::check::{Checks, broken, cover, limits, rules};
use forebay_core::{IssuedRequest, Op};

impl Port<'_> {
    /// Checks a command that the driver is offered. Returns false if a rule is broken.
    pub(super) fn check(&mut self, rq: &IssuedRequest<'_>) -> bool {
        let Port { state, checks, .. } = self;
        let tag = rq.tag.index();
        checks.expect(checks.gates.check_issue(state.hctx));
        checks.expect(limits::check(&checks.limits, rq));
        if state.live.contains(tag) {
            let what = format!("tag {tag} was issued and not reaped");
            checks.expect(broken(rules::K1, what));
            return false;
        }
        let block_size = checks.limits.logical_block_size.into();
        let covered = cover::pieces(rq, &checks.bios, block_size, &mut state.rows[tag].pieces);
        checks.expect(covered);
        let is_one = |tag: &usize| state.rows[*tag].command.op != Op::Flush;
        let nr_live = || state.live.iter().filter(is_one).count() as u32;
        let pieces = &state.rows[tag].pieces;
        let flags = pieces.first().map(|first| checks.bios.row(first.slot).flags);
        let is_limited = checks.depths.limits(rq.op, flags);
        let nr_limited = || state.live.iter().filter(|tag| state.rows[*tag].is_limited).count();
        let has_room = checks.depths.check(rq.op, is_limited, nr_live, nr_limited);
        checks.expect(has_room);
        let Checks { classes, gathers, limits, bios, .. } = &mut **checks;
        let in_order = classes.check(pieces, bios, self.now);
        let gathered = gathers.check(state.hctx, nr_live, pieces, limits, bios);
        checks.expect(in_order);
        checks.expect(gathered);
        state.rows[tag].is_limited = is_limited;
        checks.broken.is_none()
    }
}
