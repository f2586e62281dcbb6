//! Parts of a byte-stream session: the memory of payloads, and the queue of its output.
//!
//! A session whose clients lend their own memory, as guests do, uses none of this.

pub(crate) mod output;
pub(crate) mod pool;

pub use pool::{Budget, Capacity, PIECE_MAX, PieceSizes, TooLittleMemory};

use std::fmt::Debug;
use std::ops::DerefMut;

/// A piece of memory that its holder owns.
pub trait Piece: DerefMut<Target = [u8]> + Debug {}

impl<P: DerefMut<Target = [u8]> + Debug> Piece for P {}
