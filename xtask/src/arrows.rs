//! `cargo xtask arrows`: checks which workspace crates may depend on which.
//!
//! The layering is only worth something while it holds. So it is a table here, and every edge that
//! cargo reports between workspace crates must be in it. Optional and target-specific dependencies
//! and build scripts count. Dev-dependencies do not, because users of a crate never compile them.

use std::collections::BTreeSet;

use crate::Outcome;
use crate::command::Line;

/// A crate, and the workspace crates that it may depend on.
struct Row {
    name: &'static str,
    may_name: &'static [&'static str],
    /// Whether it may depend on crates outside the workspace.
    outside: bool,
    /// The reason, printed with a forbidden edge.
    why: &'static str,
}

/// The allowed edges. A crate is listed below every crate that it depends on, which rules out
/// cycles.
const ARROWS: &[Row] = &[
    Row {
        name: "forebay-core",
        may_name: &[],
        outside: false,
        why: "core is no_std with no dependency at all, so that every driver, the runtime and the \
              simulator can run the same code",
    },
    Row {
        name: "forebay-model",
        may_name: &["forebay-core"],
        outside: true,
        why: "a device model is a pure function of request and time: it knows core's types alone",
    },
    Row {
        name: "forebay-fio",
        may_name: &[],
        outside: true,
        why: "the fio dialect is text in, values out: it is usable without a block layer",
    },
    Row {
        name: "forebay-nbd",
        may_name: &["forebay-core"],
        outside: true,
        why: "the protocol is bytes and values: the server, the driver and the simulator run it",
    },
    Row {
        name: "forebay-front",
        may_name: &["forebay-core", "forebay-nbd"],
        outside: false,
        why: "the front has no sockets, threads or clock: the server and the simulator run it",
    },
    Row {
        name: "forebay-trace",
        may_name: &["forebay-core"],
        outside: true,
        why: "files of traces are records and bytes: the library and the simulator write them",
    },
    Row {
        name: "forebay",
        may_name: &["forebay-core", "forebay-model", "forebay-nbd", "forebay-trace"],
        outside: true,
        why: "the library stands on core; nothing that stands on the library may leak back into it",
    },
    Row {
        name: "forebay-insight",
        may_name: &["forebay"],
        outside: true,
        why: "a process shows its disks to top and to Prometheus, as the server does",
    },
    Row {
        name: "forebay-run",
        may_name: &["forebay-core"],
        outside: true,
        why: "settings and counters that a program shares with the library that it preloads",
    },
    Row {
        name: "forebay-aio",
        may_name: &["forebay-core", "forebay-run"],
        outside: true,
        why: "a context of the drop-in belongs to a process, and a queue of the library to a \
              thread, so the drop-in drives core itself (decision 0099)",
    },
    Row {
        name: "forebay-capi",
        may_name: &["forebay", "forebay-insight"],
        outside: true,
        why: "C programs reach the block layer through the library, as Rust programs do",
    },
    Row {
        name: "forebay-python",
        may_name: &["forebay"],
        outside: true,
        why: "Python programs reach the block layer through the library, as Rust programs do",
    },
    Row {
        name: "forebay-vhost-user",
        may_name: &["forebay-core", "forebay-front"],
        outside: true,
        why: "the device is memory, rings and messages: the server and the simulator run it",
    },
    Row {
        name: "forebay-serve",
        may_name: &[
            "forebay",
            "forebay-front",
            "forebay-insight",
            "forebay-nbd",
            "forebay-vhost-user",
        ],
        outside: true,
        why: "the server is a front end: it reaches the block layer through the library",
    },
    Row {
        name: "forebay-sim",
        may_name: &["forebay-core", "forebay-model", "forebay-fio", "forebay-front", "forebay-nbd"],
        outside: true,
        why: "the simulator drives pure code in virtual time; the library has threads and a clock",
    },
    Row {
        name: "forebay-cli",
        may_name: &[
            "forebay",
            "forebay-fio",
            "forebay-insight",
            "forebay-run",
            "forebay-serve",
            "forebay-sim",
            "forebay-trace",
        ],
        outside: true,
        why: "the program is the top: it names front ends, and core only through the library",
    },
    Row {
        name: "forebay-slowfs",
        may_name: &[],
        outside: true,
        why: "a file for tests and figures, which measure the layer from outside",
    },
    Row {
        name: "figures",
        may_name: &["forebay-slowfs"],
        outside: true,
        why: "it measures programs from outside, ours and others alike",
    },
    Row {
        name: "xtask",
        may_name: &[],
        outside: false,
        why: "the gate must build in a second and must not depend on what it judges",
    },
];

/// The code takes its primitives from these in model-checking builds only, under cfgs of this
/// project.
const MODEL_CHECKERS: [&str; 2] = ["loom", "shuttle"];

/// The direct dependencies of every member, one level deep.
const TREE: &str = "tree --workspace --edges normal,build --depth 1 --prefix depth \
                    --all-features --target all --no-dedupe";

pub(crate) fn run() -> Outcome {
    let tree = Line::cargo(TREE).output()?;
    let graph = Graph::parse(&tree)?;
    let errors = graph.errors();
    for error in &errors {
        println!("arrows: {error}");
    }
    if errors.is_empty() {
        println!("arrows: {} crates, every edge is allowed", graph.members.len());
        Ok(())
    } else {
        Err(format!("{} forbidden edges; the table is in xtask/src/arrows.rs", errors.len()))
    }
}

/// The members of the workspace, and all edges between members and to outside crates.
struct Graph<'a> {
    members: BTreeSet<&'a str>,
    edges: BTreeSet<(&'a str, &'a str)>,
}

impl<'a> Graph<'a> {
    /// Parses lines of the form `0forebay v0.1.0 (path)`: depth, name, and an ignored rest.
    fn parse(tree: &'a str) -> Result<Self, String> {
        let mut graph = Graph { members: BTreeSet::new(), edges: BTreeSet::new() };
        let mut member = None;
        for line in tree.lines().filter(|line| !line.trim().is_empty()) {
            let name = line[1..].split(' ').next().unwrap_or_default();
            match (&line[..1], member) {
                ("0", _) => {
                    graph.members.insert(name);
                    member = Some(name);
                }
                ("1", Some(from)) => {
                    graph.edges.insert((from, name));
                }
                _ => return Err(format!("`cargo {TREE}` wrote an unexpected line: {line}")),
            }
        }
        if graph.members.is_empty() {
            return Err(format!("`cargo {TREE}` listed no crate"));
        }
        Ok(graph)
    }

    fn errors(&self) -> Vec<String> {
        let unknown = self.members.iter().filter(|name| row(name).is_none()).map(|name| {
            format!("{name}: not in the table; add a row that says what it may name, and why")
        });
        let forbidden = self.edges.iter().filter_map(|&(from, to)| {
            let row = row(from)?;
            let allowed = if MODEL_CHECKERS.contains(&to) {
                true
            } else if self.members.contains(to) || self::row(to).is_some() {
                row.may_name.contains(&to)
            } else {
                row.outside
            };
            (!allowed).then(|| format!("{from} -> {to}: {}; rule: {}", row.allowed(), row.why))
        });
        unknown.chain(forbidden).collect()
    }
}

impl Row {
    fn allowed(&self) -> String {
        let inside = match self.may_name {
            [] => "no workspace crate".to_string(),
            names => names.join(", "),
        };
        let outside = if self.outside { "" } else { ", and none from outside" };
        format!("{} may name {inside}{outside}", self.name)
    }
}

fn row(name: &str) -> Option<&'static Row> {
    ARROWS.iter().find(|row| row.name == name)
}

#[cfg(test)]
mod tests {
    use super::{ARROWS, Graph};

    fn check(tree: &str, expected: &[&str]) {
        let errors = Graph::parse(tree).unwrap().errors();
        assert_eq!(errors.len(), expected.len(), "{errors:?}");
        for (error, start) in errors.iter().zip(expected) {
            assert!(error.starts_with(start), "{error}");
        }
    }

    #[test]
    fn the_intended_layering_passes() {
        check(
            "0forebay v0.1.0 (p)\n1forebay-core v0.1.0 (p)\n1libc v0.2.191\n\n\
             0forebay-cli v0.1.0 (p)\n1forebay v0.1.0 (p)\n1forebay-fio v0.1.0 (p)\n\n\
             0forebay-core v0.1.0 (p)\n\n0forebay-fio v0.1.0 (p)\n",
            &[],
        );
    }

    #[test]
    fn core_may_name_nothing_inside_or_outside() {
        check("0forebay-core v0.1.0 (p)\n1bitflags v2.13.2\n", &["forebay-core -> bitflags"]);
        check(
            "0forebay-core v0.1.0 (p)\n1forebay v0.1.0 (p)\n\n0forebay v0.1.0 (p)\n",
            &["forebay-core -> forebay:"],
        );
    }

    #[test]
    fn a_forbidden_edge_names_the_edge_and_the_rule() {
        let tree = "0forebay-fio v0.1.0 (p)\n1forebay v0.1.0 (p)\n\n0forebay v0.1.0 (p)\n";
        let errors = Graph::parse(tree).unwrap().errors();
        assert!(errors[0].contains("forebay-fio -> forebay"), "{errors:?}");
        assert!(errors[0].contains("usable without a block layer"), "{errors:?}");
    }

    #[test]
    fn nothing_but_the_program_names_the_simulator_or_the_program() {
        for row in ARROWS.iter().filter(|row| row.name != "forebay-cli") {
            assert!(!row.may_name.contains(&"forebay-sim"), "{}", row.name);
            assert!(!row.may_name.contains(&"forebay-cli"), "{}", row.name);
        }
    }

    #[test]
    fn a_crate_without_a_row_is_an_error() {
        check("0forebay-new v0.1.0 (p)\n1libc v0.2.191\n", &["forebay-new: not in the table"]);
    }

    #[test]
    fn the_table_has_no_cycle() {
        for (index, row) in ARROWS.iter().enumerate() {
            for name in row.may_name {
                let below = ARROWS[..index].iter().any(|lower| lower.name == *name);
                assert!(below, "{} must stand below {}", name, row.name);
            }
        }
    }

    #[test]
    fn output_that_is_not_a_tree_is_refused() {
        assert!(Graph::parse("").is_err());
        assert!(Graph::parse("1orphan v0.1.0\n").is_err());
        assert!(Graph::parse("[build-dependencies]\n").is_err());
    }
}
