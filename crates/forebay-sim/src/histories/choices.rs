//! All paths through a tree of choices, one after another. The next path repeats all choices up to
//! the last one with an alternative left.

/// The choices of a path, and which of them the path repeats.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    /// Each choice: its index, and the number of alternatives.
    taken: Vec<(usize, usize)>,
    /// The number of choices that the present path has made so far.
    at: usize,
    /// The first choice at which the present path differs from the last one.
    new_from: usize,
}

impl Choices {
    /// Returns one of `of` alternatives, counted from 0.
    pub(crate) fn choose(&mut self, of: usize) -> usize {
        if self.at == self.taken.len() {
            self.taken.push((0, of));
        }
        let (choice, of_then) = self.taken[self.at];
        assert_eq!(of, of_then, "what is done again is the same");
        self.at += 1;
        choice
    }

    /// Returns whether the events after the last choice did not happen on the path before.
    pub(crate) fn is_new(&self) -> bool {
        self.at >= self.new_from
    }

    /// Begins the next path. Returns false if there is none.
    pub(crate) fn next_path(&mut self) -> bool {
        self.at = 0;
        while let Some((choice, of)) = self.taken.pop() {
            if choice + 1 < of {
                self.taken.push((choice + 1, of));
                self.new_from = self.taken.len();
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_taken_once() {
        let mut choices = Choices::default();
        let mut paths = Vec::new();
        loop {
            let first = choices.choose(2);
            let second = choices.choose(if first == 0 { 3 } else { 1 });
            assert!(choices.is_new());
            paths.push((first, second));
            if !choices.next_path() {
                break;
            }
        }
        assert_eq!(paths, [(0, 0), (0, 1), (0, 2), (1, 0)]);
    }
}
