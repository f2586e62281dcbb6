//! `ioengine`: fio's engines that are accepted.

/// The I/O engines of fio whose name is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Linux AIO.
    Libaio,
    /// io_uring.
    IoUring,
    /// Completes every I/O at once, without a device.
    Null,
    /// Blocking calls: `pread` and `pwrite`.
    Psync,
    /// Blocking calls: `lseek`, then `read` or `write`.
    Sync,
}

impl Engine {
    /// Returns fio's name for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Libaio => "libaio",
            Self::IoUring => "io_uring",
            Self::Null => "null",
            Self::Psync => "psync",
            Self::Sync => "sync",
        }
    }

    /// Returns the engine of this name.
    pub fn from_word(word: &str) -> Option<Self> {
        let all = [Self::Libaio, Self::IoUring, Self::Null, Self::Psync, Self::Sync];
        all.into_iter().find(|engine| engine.word() == word)
    }

    /// Returns whether it makes one blocking call for each I/O.
    pub fn is_blocking(self) -> bool {
        matches!(self, Self::Psync | Self::Sync)
    }
}
