//! Timer slack: how late the kernel may wake a sleeping thread so that it can wake several at once.
//! The default is 50 us, which is as long as a modelled device takes.
// It makes system calls.
#![allow(unsafe_code)]

/// While this lives, the calling thread wakes as soon as its time has come. Dropping it restores
/// the previous slack. It costs three system calls of about 0.1 us each.
#[derive(Debug)]
pub(super) struct NoSlack {
    /// The previous slack, ns; `None` if nothing was changed.
    before_ns: Option<libc::c_ulong>,
}

/// The minimum slack, ns: 0 would select the default.
const LEAST_NS: libc::c_ulong = 1;

impl NoSlack {
    pub(super) fn begin() -> NoSlack {
        // If the kernel or a filter refuses, the thread keeps its slack: it wakes late, no more.
        let before_ns = get().filter(|&before_ns| before_ns > LEAST_NS && set(LEAST_NS));
        NoSlack { before_ns }
    }
}

impl Drop for NoSlack {
    fn drop(&mut self) {
        if let Some(before_ns) = self.before_ns {
            set(before_ns);
        }
    }
}

fn get() -> Option<libc::c_ulong> {
    if cfg!(miri) {
        return None;
    }
    // SAFETY: numbers only; it reads a value of the calling thread.
    let ns = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
    // For a slack above two seconds it returns something else; then nothing is changed.
    libc::c_ulong::try_from(ns).ok()
}

fn set(ns: libc::c_ulong) -> bool {
    // SAFETY: numbers only; it changes when the calling thread is woken, and nothing else.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_back_the_slack_it_had() {
        assert!(set(77_000));
        {
            let _outer = NoSlack::begin();
            assert_eq!(get(), Some(LEAST_NS));
            let inner = NoSlack::begin();
            drop(inner);
            assert_eq!(get(), Some(LEAST_NS));
        }
        assert_eq!(get(), Some(77_000));
    }
}
