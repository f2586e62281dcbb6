//! Headers stored in place, without an allocation.

use super::bytes::Sink;

/// Length of the longest header: an extended header, and the offset in front of the data.
const ROOM: usize = 40;

/// Header of data, or a whole reply without data: at most 40 bytes. It may be empty.
#[derive(Clone, Copy)]
pub struct Head {
    bytes: [u8; ROOM],
    len: u8,
}

impl Head {
    /// An empty header.
    pub const EMPTY: Head = Head { bytes: [0; ROOM], len: 0 };

    /// Returns the bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl Sink for Head {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let old = usize::from(self.len);
        let place = self.bytes.get_mut(old..).and_then(|rest| rest.get_mut(..bytes.len()));
        debug_assert!(place.is_some(), "a header of more than {ROOM} bytes");
        if let Some(place) = place {
            place.copy_from_slice(bytes);
            // It fits, so it is at most ROOM.
            self.len = u8::try_from(old.saturating_add(bytes.len())).unwrap_or(self.len);
        }
    }
}

impl core::fmt::Debug for Head {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Head").field(&self.as_slice()).finish()
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Head {}
