//! `cargo xtask circles`: checks that modules of a crate do not use each other in a circle.
//!
//! A module that another one uses is below it. Two modules that use each other have no order: the
//! reader has to know both to understand one. The check is made among the children of each module.
//! A child stands for its whole folder: files inside it may use their parent, and it may use them.
//! A name that a module only passes on counts for the module that defines it.
//!
//! Method calls are not seen, and neither are types that no path names.

mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::Outcome;
use crate::command::root;
use paths::Named;

/// A circle: the crate, the parent, and the children.
type Row<'a> = (&'a str, &'a str, &'a [&'a str]);

/// The circles that are left. The list only ever shrinks.
const ALLOWED: &[Row<'_>] = &[
    (
        "forebay-sim",
        "",
        &[
            "check",
            "coroutine",
            "device",
            "differential",
            "driver",
            "file",
            "jobs",
            "lab",
            "plant",
            "runtime",
            "scenario",
            "scenario_spec",
            "summary",
            "task",
            "world",
        ],
    ),
    ("forebay-sim", "runtime", &["hctx", "host", "tags", "thread", "turn"]),
];

pub(crate) fn run() -> Outcome {
    let mut found = Vec::new();
    for crate_name in list(&root().join("crates"))? {
        let folder = root().join("crates").join(&crate_name).join("src");
        let mut files = BTreeMap::new();
        read_folder(&folder, &mut Vec::new(), &mut files)?;
        found.extend(
            Crate::new(files).circles().into_iter().map(|circle| (crate_name.clone(), circle)),
        );
    }
    let errors = errors(&found, ALLOWED);
    for error in &errors {
        println!("circles: {error}");
    }
    for note in shrunk(&found, ALLOWED) {
        println!("circles: {note}");
    }
    if errors.is_empty() {
        println!("circles: {} left, all of them known", found.len());
        Ok(())
    } else {
        Err(format!(
            "{} new circles of modules; xtask/src/circles.rs lists the known",
            errors.len()
        ))
    }
}

/// Returns the circles that the list does not allow. A part of an allowed one is allowed.
fn errors(found: &[(String, Circle)], allowed: &[Row<'_>]) -> Vec<String> {
    let is_new = |found: &&(String, Circle)| !allowed.iter().any(|row| is_part(found, row));
    found.iter().filter(is_new).map(|(name, circle)| format!("{name}: {circle}")).collect()
}

/// Returns advice for each row of the list that allows more than there is.
fn shrunk(found: &[(String, Circle)], allowed: &[Row<'_>]) -> Vec<String> {
    let is_whole = |row: &Row<'_>| {
        let mut found = found.iter();
        found.any(|found| is_part(found, row) && found.1.children.len() == row.2.len())
    };
    let rows = allowed.iter().filter(|row| !is_whole(row));
    rows.map(|(name, parent, children)| {
        let children = children.join(", ");
        format!("{name}: [{parent}] {children} has shrunk: shorten its row in xtask/src/circles.rs")
    })
    .collect()
}

fn is_part((name, circle): &(String, Circle), (of, parent, children): &Row<'_>) -> bool {
    let is_allowed = |child: &String| children.contains(&child.as_str());
    name == of && circle.parent.join("::") == *parent && circle.children.iter().all(is_allowed)
}

/// The uses between children of one parent: the two children, and the files with the paths in them.
type Uses<'a> = BTreeMap<(&'a str, &'a str), BTreeSet<(String, String)>>;

/// Modules with the same parent that use each other.
#[derive(Debug, PartialEq, Eq)]
struct Circle {
    parent: Vec<String>,
    children: Vec<String>,
    /// The uses between them: the file, and what it names.
    uses: Vec<(String, String)>,
}

impl std::fmt::Display for Circle {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "circle in [{}]: {}", self.parent.join("::"), self.children.join(", "))?;
        self.uses.iter().try_for_each(|(from, to)| write!(out, "\n    {from} uses {to}"))
    }
}

/// The modules of a crate, by their paths from its root.
struct Crate {
    files: BTreeMap<Vec<String>, Named>,
}

impl Crate {
    /// Leaves out the modules that only test builds have.
    fn new(mut files: BTreeMap<Vec<String>, Named>) -> Crate {
        let of_tests: BTreeSet<Vec<String>> = files
            .iter()
            .flat_map(|(module, named)| {
                named.test_modules.iter().map(move |name| child(module, name))
            })
            .collect();
        files.retain(|module, _| !of_tests.iter().any(|test| module.starts_with(test)));
        Crate { files }
    }

    fn circles(&self) -> Vec<Circle> {
        // Between children of one parent: the uses, and where they are.
        let mut levels: BTreeMap<&[String], Uses<'_>> = BTreeMap::new();
        for (module, named) in &self.files {
            for path in &named.paths {
                let Some(target) = self.resolve(module, path, 0) else { continue };
                let nr_same = module.iter().zip(target).take_while(|(a, b)| a == b).count();
                let (Some(from), Some(to)) = (module.get(nr_same), target.get(nr_same)) else {
                    continue;
                };
                let uses = levels.entry(&module[..nr_same]).or_default();
                let place =
                    (module.join("/"), format!("{} ({})", target.join("/"), path.join("::")));
                uses.entry((from, to)).or_default().insert(place);
            }
        }
        levels.iter().flat_map(|(parent, uses)| circles_of(parent, uses)).collect()
    }

    /// Returns the module that defines what `path` names inside `module`. Returns `None` if that is
    /// outside of the crate.
    fn resolve<'a>(
        &'a self,
        module: &[String],
        path: &[String],
        depth: u32,
    ) -> Option<&'a [String]> {
        let (mut at, rest) = match path[0].as_str() {
            "crate" => (Vec::new(), &path[1..]),
            "self" => (module.to_vec(), &path[1..]),
            "super" => (module[..module.len().saturating_sub(1)].to_vec(), &path[1..]),
            _ => (module.to_vec(), path),
        };
        for (nth, name) in rest.iter().enumerate() {
            if name == "super" {
                at.pop();
                continue;
            }
            if self.files.contains_key(&child(&at, name)) {
                at.push(name.clone());
                continue;
            }
            let passed_on = self.files.get(&at).filter(|_| depth < 8).and_then(|named| {
                let mut imports = named.imports.iter();
                imports.find(|(of, path)| of == name && (path[0] != *name || path.len() > 1))
            });
            if let Some((_, path)) = passed_on {
                let whole: Vec<String> = path.iter().chain(&rest[nth + 1..]).cloned().collect();
                let is_inside = |first: &String| {
                    matches!(first.as_str(), "crate" | "super" | "self")
                        || self.files.contains_key(&child(&at, first))
                };
                return if is_inside(&path[0]) {
                    self.resolve(&at, &whole, depth + 1)
                } else {
                    None
                };
            }
            let is_unknown =
                nth == 0 && depth == 0 && !matches!(path[0].as_str(), "crate" | "self" | "super");
            if is_unknown {
                return None;
            }
            break;
        }
        self.files.get_key_value(&at).map(|(module, _)| module.as_slice())
    }
}

fn child(module: &[String], name: &str) -> Vec<String> {
    module.iter().cloned().chain([name.to_string()]).collect()
}

/// Returns the circles among the children of one module.
fn circles_of(parent: &[String], uses: &Uses<'_>) -> Vec<Circle> {
    let names: BTreeSet<&str> = uses.keys().flat_map(|&(from, to)| [from, to]).collect();
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        names.iter().map(|&name| (name, reachable(name, uses))).collect();
    let mut circles: Vec<Circle> = Vec::new();
    for &name in &names {
        let is_with =
            |other: &&&str| reach[name].contains(**other) && reach[**other].contains(name);
        let children: Vec<String> =
            names.iter().filter(is_with).map(|name| name.to_string()).collect();
        if children.is_empty() || children[0] != name {
            continue;
        }
        let is_member = |name: &str| children.iter().any(|child| child == name);
        let inside = uses.iter().filter(|((from, to), _)| is_member(from) && is_member(to));
        let uses = inside.flat_map(|(_, places)| places.iter().cloned()).collect();
        circles.push(Circle { parent: parent.to_vec(), children, uses });
    }
    circles
}

/// Returns what a module uses, and what that uses. It is one of these only in a circle.
fn reachable<'a>(name: &'a str, uses: &Uses<'a>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open = vec![name];
    while let Some(from) = open.pop() {
        for &(_, to) in uses.keys().filter(|(user, _)| *user == from) {
            if seen.insert(to) {
                open.push(to);
            }
        }
    }
    seen
}

/// Returns the names in a folder, in order.
fn list(folder: &Path) -> Result<Vec<String>, String> {
    let failed = |error| format!("{} cannot be read: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(failed)?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<String>, std::io::Error>>().map_err(failed)?;
    names.sort();
    Ok(names)
}

/// Reads all files below a folder whose module is `module`.
fn read_folder(
    folder: &Path,
    module: &mut Vec<String>,
    files: &mut BTreeMap<Vec<String>, Named>,
) -> Outcome {
    for name in list(folder)? {
        let path = folder.join(&name);
        if path.is_dir() {
            module.push(name);
            read_folder(&path, module, files)?;
            module.pop();
            continue;
        }
        let Some(stem) = name.strip_suffix(".rs") else { continue };
        let text = fs::read_to_string(&path)
            .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        let module = match stem {
            "lib" | "main" if module.is_empty() => Vec::new(),
            "mod" => module.clone(),
            _ => child(module, stem),
        };
        files.insert(module, paths::read(&text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the circles of a crate with these files.
    fn check(files: &[(&str, &str)], expected: &[(&str, &[&str])]) {
        let module = |path: &str| {
            path.split('/').filter(|name| !name.is_empty()).map(String::from).collect()
        };
        let files = files.iter().map(|(path, text)| (module(path), paths::read(text))).collect();
        let circles = Crate::new(files).circles();
        let found: Vec<(String, Vec<String>)> =
            circles.into_iter().map(|circle| (circle.parent.join("/"), circle.children)).collect();
        let expected: Vec<(String, Vec<String>)> = expected
            .iter()
            .map(|(parent, names)| {
                (parent.to_string(), names.iter().map(|name| name.to_string()).collect())
            })
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn modules_that_use_each_other_are_a_circle() {
        let (a, b, c) = ("use crate::b::B;", "fn f(_: crate::c::C) {}", "use super::a::A;");
        check(
            &[("", "mod a; mod b; mod c; mod d;"), ("a", a), ("b", b), ("c", c), ("d", a)],
            &[("", &["a", "b", "c"])],
        );
        check(&[("", "mod a; mod b; mod c;"), ("a", a), ("b", b), ("c", "")], &[]);
    }

    #[test]
    fn a_parent_and_its_children_are_one_room() {
        let files = [("a", "mod b; use b::B;"), ("a/b", "use super::A; use crate::a::A;")];
        check(&files, &[]);
        let files = [("a", ""), ("a/b", "use super::c;"), ("a/c", "use super::b::X;")];
        check(&files, &[("a", &["b", "c"])]);
    }

    #[test]
    fn a_use_deep_inside_counts_for_the_room() {
        let files =
            [("a", ""), ("a/b", "use crate::c::C;"), ("c", ""), ("c/d", "use crate::a::A;")];
        check(&files, &[("", &["a", "c"])]);
    }

    #[test]
    fn a_name_counts_where_it_is_defined() {
        let files = [
            ("", "mod a; mod b; pub use a::A as Z;"),
            ("a", "use crate::b::B;"),
            ("b", "use crate::Z;"),
        ];
        check(&files, &[("", &["a", "b"])]);
    }

    #[test]
    fn modules_of_test_builds_do_not_count() {
        let files = [
            ("", "mod a; #[cfg(test)] mod b;"),
            ("a", "use crate::b::B;"),
            ("b", "use crate::a::A;"),
        ];
        check(&files, &[]);
    }

    #[test]
    fn the_list_allows_a_circle_and_its_parts_and_reports_when_one_has_shrunk() {
        let circle = Circle {
            parent: vec!["x".to_string()],
            children: vec!["a".to_string(), "b".to_string()],
            uses: Vec::new(),
        };
        let found = [("forebay".to_string(), circle)];
        let count =
            |allowed: &[Row<'_>]| (errors(&found, allowed).len(), shrunk(&found, allowed).len());
        assert_eq!(count(&[("forebay", "x", &["a", "b"])]), (0, 0));
        assert_eq!(count(&[("forebay", "x", &["a", "b", "c"])]), (0, 1));
        assert_eq!(count(&[("forebay", "x", &["a", "c"])]), (1, 1));
        assert_eq!(count(&[("forebay", "y", &["a", "b"])]), (1, 1));
        assert_eq!(count(&[]), (1, 0));
    }
}
