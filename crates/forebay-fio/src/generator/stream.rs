//! Streams of I/Os whose directions another may have a say in: with rates, whichever direction is
//! behind its rate goes next, whatever the mix says.
//!
//! Source: what fio 3.33 does with `rate` and a mixed pattern.

use std::iter::Peekable;

use super::{Direction, Op};

/// A stream of I/Os that can be taken in two steps.
pub trait Stream: Iterator<Item = Op> {
    /// Which way the next I/O goes by the mix; nothing if there is none. It is drawn for that I/O,
    /// so that [`next_as`](Self::next_as) is to follow.
    fn direction(&mut self) -> Option<Direction>;

    /// The next I/O, in this direction, which has to be one of the pattern's.
    fn next_as(&mut self, direction: Direction) -> Option<Op>;
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
