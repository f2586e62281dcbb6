//! A request in flight at a client: the reply that it must get, and what has arrived of it.

use super::rules::{N2, N3, N4};
use crate::check::{Broken, Verdict, broken};
use crate::sectors::Value;
use crate::server::SECTOR;
use forebay_nbd::wire::NbdError;

/// The reply that a request must get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Success; or a failure, if the device may fail.
    Good,
    /// This error.
    Refused(NbdError),
}

/// A request in flight at a client.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) is_read: bool,
    pub(crate) is_status: bool,
    /// Only one chunk of data is allowed, or one extent is enough.
    pub(crate) is_one: bool,
    pub(crate) expected: Expected,
    /// Its index in the log, if it is logged.
    pub(crate) op: Option<usize>,
    pub(crate) data: Vec<u8>,
    has_come: Vec<bool>,
    nr_chunks: u32,
    pub(crate) error: Option<u32>,
    /// The extents of a BLOCK_STATUS reply: lengths, and whether they are zeroes.
    pub(crate) extents: Vec<(u64, bool)>,
}

impl Pending {
    pub(crate) fn new(cookie: u64, offset: u64, len: u64, expected: Expected) -> Pending {
        Pending {
            cookie,
            offset,
            len,
            is_read: false,
            is_status: false,
            is_one: false,
            expected,
            op: None,
            data: Vec::new(),
            has_come: Vec::new(),
            nr_chunks: 0,
            error: None,
            extents: Vec::new(),
        }
    }

    /// Returns the number of chunks of data that have arrived.
    pub(crate) fn nr_chunks(&self) -> u32 {
        self.nr_chunks
    }

    fn description(&self) -> String {
        format!("of request {:x}, {} bytes at {}", self.cookie, self.len, self.offset)
    }

    /// Records data, or a hole, of `len` bytes.
    pub(crate) fn part(&mut self, at: u64, len: u64, data: Option<&[u8]>) -> Verdict {
        let is_within = at >= self.offset && at + len <= self.offset + self.len;
        if !self.is_read || self.expected != Expected::Good || !is_within || len == 0 {
            return broken(N3, format!("{len} bytes at {at} {}", self.description()));
        }
        self.data.resize(self.len as usize, 0);
        self.has_come.resize(self.len as usize, false);
        let range = (at - self.offset) as usize..(at - self.offset + len) as usize;
        if self.has_come[range.clone()].iter().any(|&has| has) {
            return broken(N3, format!("twice: {len} bytes at {at} {}", self.description()));
        }
        self.has_come[range.clone()].fill(true);
        if let Some(data) = data {
            self.data[range].copy_from_slice(data);
        }
        self.nr_chunks += 1;
        match self.is_one && self.nr_chunks > 1 {
            true => broken(N3, format!("a second chunk {}", self.description())),
            false => Ok(()),
        }
    }

    /// Records an error.
    pub(crate) fn failed(&mut self, error: u32) -> Verdict {
        if self.error.replace(error).is_some() || error == 0 {
            return broken(N2, format!("error {error} {}", self.description()));
        }
        Ok(())
    }

    /// Records the extents of a reply.
    pub(crate) fn add_extents(&mut self, extents: Vec<(u64, bool)>) -> Verdict {
        let sum: u64 = extents.iter().map(|(len, _)| len).sum();
        let is_enough = sum == self.len || self.is_one && extents.len() == 1 && sum < self.len;
        if !self.is_status || !self.extents.is_empty() || !is_enough {
            return broken(N3, format!("extents of {sum} bytes {}", self.description()));
        }
        self.extents = extents;
        Ok(())
    }

    /// Checks the complete reply. Returns whether the request was done.
    pub(crate) fn over(&self, may_fail: bool) -> Result<bool, Broken> {
        let wrong = |what: &str| Err(Broken::new(N4, format!("{what} {}", self.description())));
        if let Some(error) = self.error {
            let error = NbdError::from_number(error);
            return match self.expected {
                Expected::Refused(expected) if error == expected => Ok(false),
                Expected::Good if may_fail => Ok(false),
                _ => wrong(&format!("{error}, and {:?} was expected,", self.expected)),
            };
        }
        if let Expected::Refused(expected) = self.expected {
            return wrong(&format!("success, and {expected} was expected,"));
        }
        let is_whole = self.has_come.iter().all(|&has| has);
        let has_all = self.has_come.len() as u64 == self.len && is_whole;
        if self.is_read && !has_all {
            let what = format!("data are missing {}", self.description());
            return Err(Broken::new(N3, what));
        }
        if self.is_status && self.extents.is_empty() {
            return wrong("no extents");
        }
        Ok(true)
    }

    /// Returns the values that a read has seen.
    pub(crate) fn values(&self) -> Vec<Value> {
        if self.is_status {
            // An extent that is not zeroes proves nothing.
            let sectors = self.extents.iter().flat_map(|(len, is_zero)| {
                let value = if *is_zero { Value::Zero } else { Value::Unseen };
                std::iter::repeat_n(value, (len / SECTOR) as usize)
            });
            return sectors.collect();
        }
        let sectors = self.data.chunks(SECTOR as usize).zip(self.offset / SECTOR..);
        sectors.map(|(bytes, sector)| Value::of(sector, bytes)).collect()
    }
}
