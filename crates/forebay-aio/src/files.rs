//! The files of a context that have a block layer, by descriptor and inode.
//!
//! The kernel resolves the number of a descriptor when a request is submitted, and holds the file
//! until the request has ended. The program may close the descriptor meanwhile, and its number may
//! then be that of another file. So a request that follows later, such as a repeat, needs the same
//! inode behind the number as when its iocbs were submitted.

use crate::file::File;
use crate::program::FileId;

/// The most files that a context keeps without I/O.
const IDLE_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Files(Vec<Option<(FileId, File)>>);

impl Files {
    /// Returns the index of a file, which `create` creates if it is new.
    pub(crate) fn index_of(&mut self, id: FileId, create: impl FnOnce() -> File) -> u32 {
        let is_it = |file: &Option<(FileId, File)>| file.as_ref().is_some_and(|it| it.0 == id);
        let found = self.0.iter().position(is_it);
        let index = found.unwrap_or_else(|| {
            let new = Some((id, create()));
            match self.0.iter().position(Option::is_none) {
                Some(free) => {
                    self.0[free] = new;
                    free
                }
                None => {
                    self.0.push(new);
                    self.0.len() - 1
                }
            }
        });
        u32::try_from(index).expect("a process has fewer descriptors")
    }

    pub(crate) fn get(&mut self, index: u32) -> Option<&mut (FileId, File)> {
        self.0.get_mut(index as usize)?.as_mut()
    }

    /// Forgets files without I/O if there are many.
    pub(crate) fn forget_idle(&mut self) {
        if self.0.len() <= IDLE_MAX {
            return;
        }
        for place in &mut self.0 {
            place.take_if(|(_, file)| file.is_idle());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Policy;

    #[test]
    fn place_of_an_idle_file_is_used_again_when_there_are_many() {
        let mut files = Files::default();
        let id = |fd| FileId { fd, dev: 1, ino: 2 };
        let file = |fd| File::new(id(fd), 1, Policy::default());
        assert_eq!(files.index_of(id(3), || file(3)), 0);
        assert_eq!(files.index_of(FileId { ino: 5, ..id(3) }, || file(3)), 1);
        assert_eq!(files.index_of(id(3), || unreachable!()), 0);
        (4..80).for_each(|fd| _ = files.index_of(id(fd), || file(fd)));
        files.forget_idle();
        assert!(files.get(0).is_none());
        assert_eq!(files.index_of(id(90), || file(90)), 0);
    }
}
