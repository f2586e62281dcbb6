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
    /// In fio `lseek`, then `read` or `write`; here as `psync`.
    Sync,
    /// In fio `readv` and `writev` of merged I/O; here as `psync`.
    Vsync,
    /// In fio `preadv` and `pwritev`; here as `psync`.
    Pvsync,
    /// In fio `preadv2` and `pwritev2` with flags; here as `psync`, without flags.
    Pvsync2,
    /// Copies to and from a mapping of the file.
    Mmap,
    /// Threads of the C library that make blocking calls.
    Posixaio,
    /// The NBD server of `uri`.
    Nbd,
    /// The image of `pool` and `rbdname`.
    Rbd,
}

/// The engines with their names in fio.
const ENGINES: [(Engine, &str); 12] = [
    (Engine::Libaio, "libaio"),
    (Engine::IoUring, "io_uring"),
    (Engine::Null, "null"),
    (Engine::Psync, "psync"),
    (Engine::Sync, "sync"),
    (Engine::Vsync, "vsync"),
    (Engine::Pvsync, "pvsync"),
    (Engine::Pvsync2, "pvsync2"),
    (Engine::Mmap, "mmap"),
    (Engine::Posixaio, "posixaio"),
    (Engine::Nbd, "nbd"),
    (Engine::Rbd, "rbd"),
];

impl Engine {
    /// Returns all engines.
    pub fn all() -> impl Iterator<Item = Self> {
        ENGINES.iter().map(|&(engine, _)| engine)
    }

    /// Returns fio's name for it.
    pub fn word(self) -> &'static str {
        ENGINES.iter().find(|(engine, _)| *engine == self).map_or("", |(_, word)| word)
    }

    /// Returns the engine of this name.
    pub fn from_word(word: &str) -> Option<Self> {
        ENGINES.iter().find(|(_, known)| *known == word).map(|(engine, _)| *engine)
    }

    /// Returns whether it makes one blocking call for each I/O.
    pub fn is_blocking(self) -> bool {
        use Engine::{Mmap, Psync, Pvsync, Pvsync2, Sync, Vsync};
        matches!(self, Psync | Sync | Vsync | Pvsync | Pvsync2 | Mmap)
    }

    /// Returns a warning, if the driver that is used does the I/O in another way.
    pub(super) fn note(self) -> Option<String> {
        let instead = match self {
            Self::Mmap => "the driver psync, which calls pread and pwrite: no driver maps files",
            Self::Pvsync2 => {
                "the driver psync, which calls pread and pwrite: the flags of preadv2 (hipri, \
                 nowait) are not available"
            }
            Self::Posixaio => "the driver aio: no driver uses threads of the C library",
            _ => return None,
        };
        Some(format!("--ioengine={} uses {instead}", self.word()))
    }
}

/// The options of engines that name a disk of another machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remote {
    /// `uri`: the URI of an NBD export.
    pub uri: Option<String>,
    /// `pool`: the pool of an image.
    pub pool: Option<String>,
    /// `rbdname`: the name of an image.
    pub image: Option<String>,
    /// `clientname`: the name of the user of the cluster.
    pub client: Option<String>,
}

impl Remote {
    /// Returns an option that this engine does not have.
    pub(super) fn unused(&self, engine: Option<Engine>) -> Option<&'static str> {
        let of_nbd = engine == Some(Engine::Nbd);
        let of_rbd = engine == Some(Engine::Rbd);
        let options = [
            ("uri", self.uri.is_some() && !of_nbd),
            ("pool", self.pool.is_some() && !of_rbd),
            ("rbdname", self.image.is_some() && !of_rbd),
            ("clientname", self.client.is_some() && !of_rbd),
        ];
        options.into_iter().find(|(_, is_unused)| *is_unused).map(|(name, _)| name)
    }

    /// Returns the spec of the disk, if the engine has one.
    ///
    /// # Errors
    ///
    /// The option that is missing.
    pub fn spec(&self, engine: Option<Engine>) -> Result<Option<String>, &'static str> {
        match engine {
            Some(Engine::Nbd) => self.uri.clone().map(Some).ok_or("uri"),
            Some(Engine::Rbd) => {
                let image = self.image.as_ref().ok_or("rbdname")?;
                let pool = self.pool.as_ref().ok_or("pool")?;
                let id = self.client.as_ref().map(|id| format!("?id={id}")).unwrap_or_default();
                Ok(Some(format!("rbd:{pool}/{image}{id}")))
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Engine;

    #[test]
    fn engine_whose_flags_are_lost_has_a_note() {
        let note = Engine::Pvsync2.note().expect("a note");
        assert!(note.starts_with("--ioengine=pvsync2 uses the driver psync"), "{note}");
        assert!(note.contains("hipri"), "{note}");
        assert_eq!(Engine::Psync.note(), None);
    }
}
