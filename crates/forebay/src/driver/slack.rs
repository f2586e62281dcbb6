//! Timer slack: how late the kernel may wake a thread that sleeps by the clock, so as to wake
//! several at once. Usually it is 50 us, which is as long as a device takes that is modelled.
// It makes system calls.
#![allow(unsafe_code)]

/// While this lives, the calling thread is woken as soon as its time has come. What its owner has
/// set is put back at the end. It takes three system calls, of some 0.1 us each.
#[derive(Debug)]
pub(super) struct NoSlack {
    /// What was set before, ns; None where nothing was changed.
    before_ns: Option<libc::c_ulong>,
}

/// The least that can be set, ns: 0 would mean the default.
const LEAST_NS: libc::c_ulong = 1;

impl NoSlack {
    pub(super) fn begin() -> NoSlack {
        // A kernel or a filter that refuses leaves the thread as it is: then it is late, no more.
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
    // Of a slack above two seconds it returns something else; then nothing is changed.
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
