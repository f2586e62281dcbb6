//! `cargo xtask planted`: bugs of the flush machine, planted in a copy of the core, must be found
//! by short histories, and by the rule that they break.

use crate::Outcome;
use crate::patched::Patched;

const CRATES: [&str; 5] = [
    "crates/forebay-core",
    "crates/forebay-model",
    "crates/forebay-fio",
    "crates/forebay-nbd",
    "crates/forebay-sim",
];

struct Bug {
    what: &'static str,
    /// Below the core's `src`.
    file: &'static str,
    from: &'static str,
    to: &'static str,
    /// What is said of it.
    found_by: &'static str,
}

const P2: &str = "broken rule: P2";
const TURN: &str = "flush/turn.rs";

const BUGS: &[Bug] = &[
    Bug {
        what: "a late flush joins the running one",
        file: TURN,
        from: "if is_counted && flush.is_running && flush.in_hand >= wanted.up_to() {",
        to: "if flush.is_running {",
        found_by: P2,
    },
    Bug {
        what: "one flush too many is elided",
        file: TURN,
        from: "if is_counted && durable >= wanted.up_to() {",
        to: "if is_counted && durable + 1 >= wanted.up_to() {",
        found_by: P2,
    },
    Bug {
        what: "what ends during a flush counts as durable",
        file: TURN,
        from: "device.durability.flushed(flush.in_hand)",
        to: "device.durability.flushed(device.durability.point())",
        found_by: P2,
    },
    Bug {
        what: "a write joins one with FUA, or the other way round",
        file: "merge.rs",
        from: "if rq.nomerge || new.nomerge || rq.op != new.op || rq.flags != new.flags {",
        to: "if rq.op != new.op {",
        found_by: P2,
    },
    Bug {
        what: "the queue stays held when its flush has ended",
        file: TURN,
        from: "return flush.holds && dispatch.is_empty();\n        }",
        to: "return flush.holds && dispatch.is_empty();\n        }\n        \
             if flush.holds && flush.nr_in_a_row > 0 {\n            return true;\n        }",
        found_by: "broken rule: F5",
    },
    Bug {
        what: "a flush that fails ends nobody",
        file: TURN,
        from: "                Err(status) => Err(status),\n            };",
        to: "                Err(_) => continue,\n            };",
        found_by: "broken rule: F7",
    },
    Bug {
        what: "a flush that fails ends who waits for it as if it had not",
        file: TURN,
        from: "                Err(status) => Err(status),\n            };",
        to: "                Err(_) => Ok(()),\n            };",
        found_by: P2,
    },
    Bug {
        what: "what a flush has lost is forgotten",
        file: TURN,
        from: "        device.durability.flush_failed();",
        to: "",
        found_by: P2,
    },
    Bug {
        what: "what is at the device when a flush fails counts as safe",
        file: TURN,
        from: "queued.is_in_doubt = true;",
        to: "queued.is_in_doubt = false;",
        found_by: P2,
    },
    Bug {
        what: "a flush that succeeds fails who waits for it",
        file: TURN,
        from: "                Ok(_) if is_safe() => Ok(()),",
        to: "                Ok(_) if is_safe() => Err(BlockStatus::Io),",
        found_by: "broken rule: F3",
    },
    Bug {
        what: "a write with FUA is flushed for what was durable before",
        file: TURN,
        from: "return Wanted::Point(self.ended_point(is_in_doubt));",
        to: "return Wanted::Point(self.hctx.device.durability.durable());",
        found_by: P2,
    },
    Bug {
        what: "PREFLUSH is forgotten",
        file: "flush/steps.rs",
        from: "if op == Op::Flush || flags.contains(BioFlags::PREFLUSH) {",
        to: "if op == Op::Flush {",
        found_by: P2,
    },
    Bug {
        what: "a flush ends the first that waits for it alone",
        file: TURN,
        from: "core::mem::swap(&mut flush.pending, &mut flush.running);",
        to: "flush.running.push(flush.pending.remove(0));",
        found_by: "broken rule: F6",
    },
];

pub(crate) fn run() -> Outcome {
    let copy = Patched::make("planted", &CRATES)?;
    let line = copy.cargo("test --quiet --package forebay-sim --test it", "planted/target");
    let line = line.argument("histories".to_owned());
    if let Some(output) = line.failure()? {
        return Err(format!("without a planted bug a history fails:\n{output}"));
    }
    let mut alive = Vec::new();
    for (index, Bug { what, file, from, to, found_by }) in BUGS.iter().enumerate() {
        let file = format!("{}/src/{file}", CRATES[0]);
        let output = copy.with(&file, from, to, || {
            line.clone().argument("--no-run".to_owned()).run()?;
            line.failure()
        })?;
        let is_found = output.is_some_and(|output| output.contains(found_by));
        let verdict = if is_found { "found by" } else { "NOT found by" };
        println!("planted: [{}/{}] {what}: {verdict} `{found_by}`", index + 1, BUGS.len());
        if !is_found {
            alive.push(format!("{what}: not found, or not by `{found_by}`"));
        }
    }
    if alive.is_empty() { Ok(()) } else { Err(alive.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::{BUGS, CRATES};
    use crate::command::root;
    use crate::patched::read;

    #[test]
    fn the_table_fits_the_tree() {
        for bug in BUGS {
            let text = read(&root().join(CRATES[0]).join("src").join(bug.file)).unwrap();
            assert_eq!(text.matches(bug.from).count(), 1, "{}: mend xtask/src/planted", bug.what);
        }
    }
}
