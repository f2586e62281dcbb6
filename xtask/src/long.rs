//! `cargo xtask long NAME`: tests that take minutes or hours, and are not part of CI.
//!
//! They run before a release, whose notes contain their output.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::command::Line;
use crate::suite::{self, Suite};
use crate::{
    Outcome, fuzz, histories, msrv, package, pictures, planted, publish, sessions, trace_points,
};

/// A long test with a name.
struct Long {
    name: &'static str,
    /// The time that it takes on two processors.
    time: &'static str,
    /// The tests that it runs.
    what: &'static str,
    run: fn() -> Outcome,
}

const ALL: &[Long] = &[
    Long {
        name: "soak",
        time: "15 min",
        what: "random calls of many threads, 2 minutes a test",
        run: soak,
    },
    Long {
        name: "aio",
        time: "10 min",
        what: "programs on both libaios, several at once: `long aio [MINUTES [SEED]]`",
        run: || aio(&[]),
    },
    Long {
        name: "guests",
        time: "4 min",
        what: "50 kills of a guest's server, 5 of QEMU (qemu-system-x86_64)",
        run: guests,
    },
    Long {
        name: "opens",
        time: "4 min",
        what: "1,000 disks opened and closed, by each kind of driver (ceph, qemu)",
        run: opens,
    },
    Long {
        name: "histories",
        time: "20 min",
        what: "`cargo xtask histories --all`",
        run: histories::run_all,
    },
    Long {
        name: "sessions",
        time: "8 min",
        what: "`cargo xtask sessions --all`",
        run: sessions::run_all,
    },
    Long {
        name: "package",
        time: "20 min",
        what: "all packages, with the profile `dist` (lintian, musl-tools, buildah)",
        run: package::all,
    },
    Long {
        name: "publish",
        time: "10 min",
        what: "`cargo xtask publish --verify`",
        run: publish::verify,
    },
    Long {
        name: "pictures",
        time: "3 min",
        what: "`cargo xtask pictures --all` (chromium)",
        run: pictures::run_all,
    },
    Long {
        name: "msrv",
        time: "2 min",
        what: "the oldest supported Rust compiles the workspace (rustup)",
        run: msrv::run,
    },
    Long {
        name: "trace-points",
        time: "5 min",
        what: "the instructions that traces cost an I/O while they are off (valgrind)",
        run: trace_points::run,
    },
    Long {
        name: "planted",
        time: "2 hours",
        what: "`cargo xtask planted --all`",
        run: planted::run_all,
    },
    Long {
        name: "fuzz",
        time: "3 hours",
        what: "`cargo xtask fuzz 600`",
        run: || fuzz::run(Some(600)),
    },
];

/// Runs the long test with this name. Only `aio` has options.
pub(crate) fn run(name: &str, options: &[&str]) -> Outcome {
    let long = ALL.iter().find(|long| long.name == name);
    let long =
        long.ok_or_else(|| format!("long: there is no test `{name}`; it has\n{}", list()))?;
    match options {
        [] => {
            println!("long: {name}, about {}: {}", long.time, long.what);
            (long.run)()
        }
        options if name == "aio" => aio(options),
        _ => Err(format!("long: {name} has no options")),
    }
}

/// Returns one line for each name.
pub(crate) fn list() -> String {
    ALL.iter().fold(String::new(), |mut text, long| {
        writeln!(text, "  {:<10} {:<8} {}", long.name, long.time, long.what).expect("a string");
        text
    })
}

fn soak() -> Outcome {
    let suites = [Suite {
        target: "--package forebay --test it --all-features",
        names: &["--nocapture", "soak::", "crowd::", "scheduler_changes::a_thousand"],
        skips: &[],
    }];
    suite::run("long", &suites, &Line::cargo("test").variable("FOREBAY_SOAK_SECONDS", "120"))
}

/// Runs the programs of `forebay-aio`. The options are minutes, and the first seed, which is the
/// time by default.
fn aio(options: &[&str]) -> Outcome {
    let number = |nth: usize| {
        let parse = |word: &&str| {
            let number = word.parse::<u64>().ok().filter(|number| *number > 0);
            number.ok_or_else(|| {
                format!("long: aio: expected a whole number of at least 1, found `{word}`")
            })
        };
        options.get(nth).map(parse).transpose()
    };
    if options.len() > 2 {
        return Err("long: aio has two options: minutes, and the first seed".to_owned());
    }
    let seconds = 60 * number(0)?.unwrap_or(10);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs());
    let seed = number(1)?.unwrap_or(now);
    let suites = [Suite {
        target: "--package forebay-aio --test calls",
        names: &["--nocapture", "soak::"],
        skips: &[],
    }];
    let line = Line::cargo("test").variable("FOREBAY_AIO_SOAK_SECONDS", seconds.to_string());
    suite::run("long", &suites, &line.variable("FOREBAY_AIO_SOAK_SEED", seed.to_string()))
}

fn opens() -> Outcome {
    let suites = [Suite {
        target: "--package forebay --test it --all-features",
        names: &["--ignored", "--show-output", "leaks::"],
        skips: &[],
    }];
    suite::run("long", &suites, &Line::cargo("test").variable("FOREBAY_REQUIRE_TOOLS", "1"))
}

fn guests() -> Outcome {
    let suites = [Suite {
        target: "--package forebay-cli --test it",
        names: &["--nocapture", "guest::restarts", "guest::kills", "ring_registers::"],
        skips: &[],
    }];
    let line = Line::cargo("test").variable("FOREBAY_GUEST_KILLS", "50");
    let line = line.variable("FOREBAY_MACHINE_KILLS", "5").variable("FOREBAY_REQUIRE_TOOLS", "1");
    suite::run("long", &suites, &line)
}

#[cfg(test)]
mod tests {
    use super::{ALL, list, run};

    #[test]
    fn an_unknown_name_is_answered_with_the_list() {
        let message = run("frobnicate", &[]).unwrap_err();
        assert!(message.contains("`frobnicate`"), "{message}");
        assert!(ALL.iter().all(|long| message.contains(long.what)), "{message}");
        assert_eq!(list().lines().count(), ALL.len());
    }

    #[test]
    fn options_of_the_wrong_kind_or_for_another_test_are_refused() {
        assert!(run("aio", &["x"]).unwrap_err().contains("`x`"));
        assert!(run("aio", &["1", "0"]).unwrap_err().contains("`0`"));
        assert!(run("aio", &["1", "2", "3"]).unwrap_err().contains("two options"));
        assert!(run("opens", &["1"]).unwrap_err().contains("opens has no options"));
    }
}
