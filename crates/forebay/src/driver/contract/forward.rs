//! Wrappers of drivers: methods that pass calls on, and boxed queues.
// The traits are unsafe.
#![allow(unsafe_code)]

use super::{Answer, Queue};
use forebay_core::{Completions, IssuedRequest, Reap, Tag};

// SAFETY: it passes each call on.
unsafe impl<Q: Queue + ?Sized> Queue for Box<Q> {
    #[inline]
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, last: bool) -> Answer {
        (**self).queue_rq(rq, last)
    }

    #[inline]
    fn commit_rqs(&mut self) {
        (**self).commit_rqs();
    }

    #[inline]
    fn reap(&mut self, done: &mut Completions, how: Reap) {
        (**self).reap(done, how);
    }

    fn cancel(&mut self, tag: Tag) -> bool {
        (**self).cancel(tag)
    }

    #[inline]
    fn has_ready(&self) -> bool {
        (**self).has_ready()
    }

    fn nr_syscalls(&self) -> Option<u64> {
        (**self).nr_syscalls()
    }
}

/// Defines methods of a wrapper that pass each call on to a field: those of
/// [`Driver`](crate::driver::Driver) and [`Queue`](crate::driver::Queue) that it does not change.
///
/// The wrapper lists each method, so a method that a later version adds is an error until the
/// wrapper decides about it.
///
/// ```
/// use forebay::driver::{Answer, IssuedRequest, Queue, forward};
///
/// /// Counts requests.
/// struct Counted<Q> {
///     inner: Q,
///     nr: u64,
/// }
///
/// // SAFETY: it passes on each request and each completion.
/// unsafe impl<Q: Queue> Queue for Counted<Q> {
///     forward!(inner => commit_rqs, reap, cancel, has_ready, nr_syscalls);
///
///     fn queue_rq(&mut self, rq: &IssuedRequest<'_>, last: bool) -> Answer {
///         self.nr += 1;
///         self.inner.queue_rq(rq, last)
///     }
/// }
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! __forward_driver {
    ($inner:tt => $($method:ident),+ $(,)?) => {
        $($crate::__forward_driver!(@$method $inner);)+
    };
    (@queue_rq $inner:tt) => {
        #[inline]
        fn queue_rq(
            &mut self,
            rq: &$crate::driver::IssuedRequest<'_>,
            last: bool,
        ) -> $crate::driver::Answer {
            $crate::driver::Queue::queue_rq(&mut self.$inner, rq, last)
        }
    };
    (@commit_rqs $inner:tt) => {
        #[inline]
        fn commit_rqs(&mut self) {
            $crate::driver::Queue::commit_rqs(&mut self.$inner);
        }
    };
    (@reap $inner:tt) => {
        #[inline]
        fn reap(&mut self, done: &mut $crate::driver::Completions, how: $crate::driver::Reap) {
            $crate::driver::Queue::reap(&mut self.$inner, done, how);
        }
    };
    (@cancel $inner:tt) => {
        fn cancel(&mut self, tag: $crate::driver::Tag) -> bool {
            $crate::driver::Queue::cancel(&mut self.$inner, tag)
        }
    };
    (@has_ready $inner:tt) => {
        #[inline]
        fn has_ready(&self) -> bool {
            $crate::driver::Queue::has_ready(&self.$inner)
        }
    };
    (@nr_syscalls $inner:tt) => {
        fn nr_syscalls(&self) -> Option<u64> {
            $crate::driver::Queue::nr_syscalls(&self.$inner)
        }
    };
    (@facts $inner:tt) => {
        fn facts(&self) -> $crate::driver::Facts {
            $crate::driver::Driver::facts(&self.$inner)
        }
    };
    (@block_status $inner:tt) => {
        fn block_status(
            &self,
            offset: u64,
            extents: &mut $crate::Extents<'_>,
        ) -> Result<(), $crate::BlockStatus> {
            $crate::driver::Driver::block_status(&self.$inner, offset, extents)
        }
    };
    (@size_bytes $inner:tt) => {
        fn size_bytes(&self) -> ::std::io::Result<Option<u64>> {
            $crate::driver::Driver::size_bytes(&self.$inner)
        }
    };
    (@failure $inner:tt) => {
        fn failure(&self) -> Option<String> {
            $crate::driver::Driver::failure(&self.$inner)
        }
    };
}
