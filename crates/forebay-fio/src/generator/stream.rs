//! Streams of I/Os whose direction the caller may change: with rates, the direction that is behind
//! its rate goes next, whatever the mix is.
//!
//! Source: fio 3.33 with `rate` and a mixed pattern.

use std::iter::Peekable;

use super::ending::EarlyEnd;
use super::{Direction, Op};

/// A stream of I/Os that returns the direction and the I/O in two steps.
pub trait Stream: Iterator<Item = Op> {
    /// Returns the direction of the next I/O by the mix; `None` at the end. A call of
    /// [`next_as`](Self::next_as) must follow.
    fn direction(&mut self) -> Option<Direction>;

    /// Returns the direction of the next I/O if the caller chooses `direction`: another one if no
    /// I/O in that direction is possible now.
    fn possible_direction(&self, direction: Direction) -> Direction {
        direction
    }

    /// Returns the next I/O in this direction, which the pattern must have. Other streams may have
    /// made it impossible since; then the I/O has another direction.
    fn next_as(&mut self, direction: Direction) -> Option<Op>;

    /// Returns why the stream has ended with bytes left, if it has.
    fn early_end(&self) -> Option<EarlyEnd> {
        None
    }
}

/// I/Os that are known beforehand go as they are.
impl<I: Iterator<Item = Op>> Stream for Peekable<I> {
    fn direction(&mut self) -> Option<Direction> {
        self.peek().map(|op| op.direction)
    }

    fn next_as(&mut self, _: Direction) -> Option<Op> {
        self.next()
    }
}
