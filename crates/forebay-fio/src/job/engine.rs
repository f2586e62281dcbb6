//! `ioengine`: the words of fio that are accepted, and what they mean here.

/// The I/O engines of fio whose name is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Linux AIO.
    Libaio,
    /// io_uring.
    IoUring,
    /// Completes everything at once, without a device.
    Null,
    /// Blocking calls: `pread` and `pwrite`.
    Psync,
    /// Blocking calls: `lseek`, then `read` or `write`.
    Sync,
}

impl Engine {
    /// fio's word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Libaio => "libaio",
            Self::IoUring => "io_uring",
            Self::Null => "null",
            Self::Psync => "psync",
            Self::Sync => "sync",
        }
    }

    /// The engine of this word.
    pub fn from_word(word: &str) -> Option<Self> {
        let all = [Self::Libaio, Self::IoUring, Self::Null, Self::Psync, Self::Sync];
        all.into_iter().find(|engine| engine.word() == word)
    }

    /// Whether it makes a call for each I/O, and waits in it.
    pub fn is_blocking(self) -> bool {
        matches!(self, Self::Psync | Self::Sync)
    }
}
