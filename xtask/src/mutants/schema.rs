//! All mutants in one build: each weakened ordering is a branch, which a variable of the
//! environment selects at run time. A build for each mutant would take most of the gate's time.

use super::Mutant;

/// Name of the variable with the number of the selected mutant.
pub(super) const SELECT: &str = "FOREBAY_MUTANT";

/// Appended to the root of the crate.
pub(super) const MODULE: &str = "
mod mutant {
    use core::sync::atomic::Ordering;
    use std::sync::OnceLock;

    /// Returns whether one of these mutants is selected.
    pub(crate) fn is_one_of(numbers: &[usize]) -> bool {
        static SELECTED: OnceLock<Option<usize>> = OnceLock::new();
        let number = || std::env::var(\"FOREBAY_MUTANT\").ok()?.parse().ok();
        SELECTED.get_or_init(number).is_some_and(|selected| numbers.contains(&selected))
    }

    /// Returns the ordering of the selected mutant, if it is one of these, or the shipped one.
    pub(crate) fn order(shipped: Ordering, mutants: &[(usize, Ordering)]) -> Ordering {
        let selected = mutants.iter().find(|(number, _)| is_one_of(&[*number]));
        selected.map_or(shipped, |(_, order)| *order)
    }
}
";

const PREFIX: &str = "Ordering::";
const FENCES: [&str; 3] =
    ["fence(Ordering::SeqCst);", "fence(Ordering::Acquire);", "fence(Ordering::Release);"];

/// Replaces all orderings in `text` that these mutants weaken. Each has its number.
pub(super) fn combine(text: &str, mutants: &[(usize, &Mutant)]) -> Result<String, String> {
    let mut regions: Vec<(&str, Region)> = Vec::new();
    for (number, mutant) in mutants {
        let at = regions.iter().position(|(from, _)| *from == mutant.from).unwrap_or_else(|| {
            regions.push((mutant.from, Region::new(mutant.from)));
            regions.len() - 1
        });
        regions[at].1.add(*number, mutant)?;
    }
    let mut text = text.to_owned();
    for (from, region) in regions {
        if text.matches(from).count() != 1 {
            return Err(format!(
                "two mutants change parts of `{from}`: fix the tables in xtask/src/mutants"
            ));
        }
        text = text.replacen(from, &region.branches(), 1);
    }
    Ok(text)
}

/// The text of one or several mutants, without comments.
struct Region {
    /// The texts before, between and after the orderings.
    pieces: Vec<String>,
    orders: Vec<Order>,
}

struct Order {
    shipped: String,
    /// The mutants that replace it.
    weakened: Vec<(usize, String)>,
    /// The mutants that remove the fence with it.
    removed: Vec<usize>,
}

impl Region {
    fn new(from: &str) -> Region {
        let (pieces, orders) = split(&squeeze(from));
        let order = |shipped| Order { shipped, weakened: Vec::new(), removed: Vec::new() };
        Region { pieces, orders: orders.into_iter().map(order).collect() }
    }

    /// Adds a mutant, which has weaker orderings or lacks the fence.
    fn add(&mut self, number: usize, Mutant { from, to, .. }: &Mutant) -> Result<(), String> {
        let (pieces, weaker) = split(&squeeze(to));
        if pieces == self.pieces {
            let changed = self.orders.iter_mut().zip(weaker);
            changed
                .filter(|(order, weaker)| order.shipped != *weaker)
                .for_each(|(order, weaker)| order.weakened.push((number, weaker)));
            return Ok(());
        }
        let place = self.pieces.iter().position(|piece| piece.ends_with("fence("));
        let is_without =
            |fence: &&str| squeeze(&squeeze(from).replacen(*fence, "", 1)) == squeeze(to);
        match place {
            Some(at) if FENCES.iter().any(is_without) => {
                self.orders[at].removed.push(number);
                Ok(())
            }
            _ => Err(format!("`{to}` is not `{from}` with weaker orderings or without its fence")),
        }
    }

    /// Returns the text in which the selected mutant takes effect at run time.
    fn branches(&self) -> String {
        let mut text = String::new();
        let mut is_fence_removed = false;
        for (at, piece) in self.pieces.iter().enumerate() {
            let mut piece = piece.clone();
            if is_fence_removed {
                piece = piece.replacen(");", "); }", 1);
            }
            let Some(Order { shipped, weakened, removed }) = self.orders.get(at) else {
                text += &piece;
                break;
            };
            is_fence_removed = !removed.is_empty();
            if is_fence_removed {
                let branch = format!("if !crate::mutant::is_one_of(&{removed:?}) {{ fence(");
                piece = piece.replacen("fence(", &branch, 1);
            }
            text += &piece;
            let weakened: Vec<_> =
                weakened.iter().map(|(number, order)| format!("({number}, {order})")).collect();
            text += &match weakened.is_empty() {
                true => shipped.clone(),
                false => format!("crate::mutant::order({shipped}, &[{}])", weakened.join(", ")),
            };
        }
        text
    }
}

/// Removes comments, and replaces white space by single spaces.
fn squeeze(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    words.join(" ")
}

/// Splits a text into the texts around its orderings, and the orderings.
fn split(text: &str) -> (Vec<String>, Vec<String>) {
    let mut parts = text.split(PREFIX);
    let mut pieces = vec![parts.next().unwrap_or_default().to_owned()];
    let mut orders = Vec::new();
    for part in parts {
        let end = part.find(|c: char| !c.is_alphanumeric()).unwrap_or(part.len());
        orders.push(format!("{PREFIX}{}", &part[..end]));
        pieces.push(part[end..].to_owned());
    }
    (pieces, orders)
}

#[cfg(test)]
mod tests {
    use super::super::mutants;
    use super::{FENCES, MODULE, Region, SELECT, combine, squeeze};
    use crate::mutants::{Mutant, table};

    /// Returns the text that takes effect if a mutant is selected, or none.
    fn effect(region: &Region, selected: Option<usize>) -> String {
        let mut text = String::new();
        for (at, piece) in region.pieces.iter().enumerate() {
            text += piece;
            if let Some(order) = region.orders.get(at) {
                let weakened = order.weakened.iter().find(|(number, _)| Some(*number) == selected);
                text += weakened.map_or(&order.shipped, |(_, order)| order);
            }
        }
        let removes = |number| region.orders.iter().any(|order| order.removed.contains(&number));
        match selected.is_some_and(removes) {
            true => squeeze(&FENCES.iter().fold(text, |text, fence| text.replacen(fence, "", 1))),
            false => text,
        }
    }

    #[test]
    fn each_mutant_has_the_effect_of_its_text_and_no_mutant_has_none() {
        for (number, mutant) in mutants().enumerate() {
            let mut region = Region::new(mutant.from);
            region.add(number, mutant).unwrap();
            assert_eq!(effect(&region, None), squeeze(mutant.from));
            assert_eq!(effect(&region, Some(number)), squeeze(mutant.to));
            assert_ne!(squeeze(mutant.to), squeeze(mutant.from));
        }
    }

    #[test]
    fn weaker_and_removed_fences_become_branches() {
        let from = "f();\n    // Why.\n    fence(Ordering::SeqCst);\n    g(Ordering::AcqRel, 1)";
        let mutants = [
            ("f(); g(Ordering::AcqRel, 1)", 4),
            ("f(); fence(Ordering::AcqRel); g(Ordering::AcqRel, 1)", 5),
            ("f(); fence(Ordering::SeqCst); g(Ordering::Acquire, 1)", 6),
        ];
        let mutants =
            mutants.map(|(to, number)| (number, table::mutant("file.rs", from, to, "test")));
        let numbered: Vec<(usize, &Mutant)> = mutants.iter().map(|(nr, it)| (*nr, it)).collect();
        let text = combine(&format!("begin {from} end"), &numbered).unwrap();
        let expected = "begin f(); if !crate::mutant::is_one_of(&[4]) { \
                        fence(crate::mutant::order(Ordering::SeqCst, &[(5, Ordering::AcqRel)])); } \
                        g(crate::mutant::order(Ordering::AcqRel, &[(6, Ordering::Acquire)]), 1) \
                        end";
        assert_eq!(text, expected);
        assert!(MODULE.contains(SELECT));
    }

    #[test]
    fn change_of_anything_but_orderings_is_an_error() {
        let mutant =
            table::mutant("file.rs", "f(Ordering::AcqRel)", "g(Ordering::Acquire)", "test");
        let message = combine("f(Ordering::AcqRel)", &[(1, &mutant)]).unwrap_err();
        assert!(message.contains("is not `f(Ordering::AcqRel)` with weaker"), "{message}");
    }
}
