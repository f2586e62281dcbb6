//! Every option of every command has an effect, and errors of command lines are in one style.

use clap::Command as ClapCommand;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;

use super::*;

/// A device that is added.
const ADD_DEVICE: &str = "ctl s add a x --vhost-user-blk unix:s";

/// The command, its option, arguments, and the same arguments with the option. `DIR` is a directory
/// with job files, `LISTENER` the number of a socket.
const EFFECTS: &[(&str, &str, &str, &str)] = &[
    ("info", "spec", "info ram:1M", "info null:1M"),
    ("info", "json", "info ram:1M", "info ram:1M --json"),
    ("serve", "specs", "serve a", "serve a b"),
    ("serve", "nbd", "serve a", "serve a --nbd unix:s"),
    ("serve", "name", "serve a", "serve a --name n"),
    ("serve", "description", "serve a", "serve a --description d"),
    ("serve", "limits", "serve a", "serve a --limits iops=5"),
    ("serve", "priority", "serve a", "serve a --priority idle"),
    ("serve", "fork", "serve a", "serve a --fork"),
    ("serve", "pid_file", "serve a", "serve a --pid-file p"),
    ("serve", "run", "serve a", "serve a --run true"),
    ("serve", "exit_last", "serve a", "serve a --exit-last"),
    ("serve", "allow_path", "serve a --control c", "serve a --control c --allow-path DIR"),
    ("serve", "log_level", "serve a", "serve a --log-level error"),
    ("serve", "log_format", "serve a", "serve a --log-format json"),
    ("serve", "trace", "serve a", "serve a --trace t"),
    ("serve", "control", "serve a", "serve a --control c"),
    ("ctl", "socket", "ctl a list", "ctl b list"),
    ("ctl", "json", "ctl a list", "ctl a list --json"),
    ("ctl limits", "export", "ctl s limits a", "ctl s limits b"),
    ("ctl limits", "limits", "ctl s limits a", "ctl s limits a iops=5"),
    ("ctl limits", "client", "ctl s limits a iops=5", "ctl s limits a iops=5 --client 3"),
    ("ctl policy", "export", "ctl s policy a", "ctl s policy b"),
    ("ctl policy", "settings", "ctl s policy a", "ctl s policy a scheduler=bfq"),
    ("ctl resize", "export", "ctl s resize", "ctl s resize a"),
    ("ctl add", "name", "ctl s add a ram:1M", "ctl s add b ram:1M"),
    ("ctl add", "spec", "ctl s add a ram:1M", "ctl s add a ram:2M"),
    ("ctl add", "description", "ctl s add a ram:1M", "ctl s add a ram:1M --description d"),
    ("ctl add", "read_only", "ctl s add a ram:1M", "ctl s add a ram:1M --read-only"),
    ("ctl add", "limits", "ctl s add a ram:1M", "ctl s add a ram:1M --limits iops=5"),
    ("ctl add", "priority", "ctl s add a ram:1M", "ctl s add a ram:1M --priority idle"),
    (
        "ctl add",
        "vhost_user_blk",
        "ctl s add a ram:1M",
        "ctl s add a ram:1M --vhost-user-blk unix:s",
    ),
    ("ctl add", "num_queues", ADD_DEVICE, "ctl s add a x --vhost-user-blk unix:s --num-queues 63"),
    ("ctl add", "queue_size", ADD_DEVICE, "ctl s add a x --vhost-user-blk unix:s --queue-size 64"),
    ("ctl add", "block_size", ADD_DEVICE, "ctl s add a x --vhost-user-blk unix:s --block-size 512"),
    ("ctl add", "serial", ADD_DEVICE, "ctl s add a x --vhost-user-blk unix:s --serial n"),
    ("ctl add", "by_path", "ctl s add a x.img", "ctl s add a x.img --by-path"),
    ("ctl remove", "export", "ctl s remove a", "ctl s remove b"),
    ("ctl remove", "force", "ctl s remove a", "ctl s remove a --force"),
    ("ctl drain", "force", "ctl s drain", "ctl s drain --force"),
    ("ctl log-level", "level", "ctl s log-level", "ctl s log-level error"),
    ("ctl trace", "switch", "ctl s trace", "ctl s trace on"),
    ("control", "socket", "control a", "control b"),
    ("control", "export", "control a", "control a b"),
    ("control", "limits", "control a b", "control a b iops=5"),
    ("control", "client", "control a b iops=5", "control a b iops=5 --client 3"),
    ("control", "json", "control a", "control a --json"),
    ("serve", "read_only", "serve a", "serve a --read-only"),
    ("serve", "shared", "serve a", "serve a --shared"),
    (
        "serve",
        "tls",
        "serve a --tls-certificates pki --tls on",
        "serve a --tls-certificates pki --tls require",
    ),
    (
        "serve",
        "tls_certificates",
        "serve a --tls require --tls-certificates pki",
        "serve a --tls require --tls-certificates other",
    ),
    (
        "serve",
        "tls_verify_peer",
        "serve a --tls require --tls-certificates pki",
        "serve a --tls require --tls-certificates pki --tls-verify-peer",
    ),
    ("serve", "max_connections", "serve a", "serve a --max-connections 7"),
    ("serve", "threads", "serve a --threads 2", "serve a --threads 3"),
    ("serve", "memory_mib", "serve a", "serve a --memory-mib 7"),
    ("serve", "poll", "serve a", "serve a --poll off"),
    ("serve", "takeover_wait", "serve a", "serve a --takeover-wait 7"),
    ("serve", "metrics", "serve a", "serve a --metrics unix:m"),
    ("serve", "vhost_user_blk", "serve a", "serve a --vhost-user-blk unix:s"),
    ("serve", "socket_path", "serve a", "serve a --socket-path s"),
    ("serve", "fd", "serve a", "serve a --fd LISTENER"),
    ("serve", "blk_file", "serve a --socket-path s", "serve --socket-path s --blk-file b"),
    ("serve", "num_queues", "serve a --socket-path s", "serve a --socket-path s --num-queues 63"),
    ("serve", "queue_size", "serve a --socket-path s", "serve a --socket-path s --queue-size 64"),
    ("serve", "serial", "serve a --socket-path s", "serve a --socket-path s --serial x"),
    ("serve", "block_size", "serve a --socket-path s", "serve a --socket-path s --block-size 4096"),
    (
        "serve",
        "register_memory",
        "serve a --socket-path s",
        "serve a --socket-path s --register-memory",
    ),
    // It replaces the run, so no disk is needed.
    ("serve", "print_capabilities", "serve a", "serve --print-capabilities"),
    ("sim", "job", "sim --seed 1 DIR/a.fio", "sim --seed 1 DIR/b.fio"),
    ("sim", "random", "sim --seed 1 --nbd", "sim --seed 1 --random"),
    ("sim", "nbd", "sim --seed 1 --random", "sim --seed 1 --nbd"),
    ("sim", "seed", "sim --seed 1 --random", "sim --seed 7 --random"),
    ("sim", "seeds", "sim --seed 1 --random", "sim --seed 1 --random --seeds 7"),
    ("sim", "device", "sim --seed 1 DIR/a.fio", "sim --seed 1 DIR/a.fio --device nvme"),
    ("sim", "set", "sim --seed 1 DIR/a.fio", "sim --seed 1 DIR/a.fio --set plug=none"),
    ("sim", "compare", "sim --seed 1 DIR/a.fio", "sim --seed 1 DIR/a.fio --compare plug=none"),
    ("sim", "sweep", "sim --seed 1 DIR/a.fio", "sim --seed 1 DIR/a.fio --sweep wake=fair,batch"),
    ("sim", "write_trace", "sim --seed 1 DIR/a.fio", "sim --seed 1 DIR/a.fio --write-trace t"),
    ("sim", "trace", "sim --seed 1 --trace DIR/a.log", "sim --seed 1 --trace DIR/b.log"),
    (
        "sim",
        "replay_no_stall",
        "sim --seed 1 --trace DIR/a.log",
        "sim --seed 1 --trace DIR/a.log --replay-no-stall",
    ),
    (
        "sim",
        "replay_time_scale",
        "sim --seed 1 --trace DIR/a.log",
        "sim --seed 1 --trace DIR/a.log --replay-time-scale 7",
    ),
    (
        "sim",
        "iodepth",
        "sim --seed 1 --trace DIR/a.log",
        "sim --seed 1 --trace DIR/a.log --iodepth 7",
    ),
    ("sim", "wake", "sim --seed 1 --random", "sim --seed 1 --random --wake batch"),
    ("sim", "wake", "sim --seed 1 DIR/a.fio", "sim --seed 1 DIR/a.fio --wake batch"),
    ("sim", "queue_depth", "sim --seed 1 --random", "sim --seed 1 --random --queue-depth 7"),
    ("sim", "queue_depth", "sim --seed 1 DIR/a.fio", "sim --seed 1 DIR/a.fio --queue-depth 7"),
    ("calibrate", "spec", "calibrate ram:64M", "calibrate ram:128M"),
    ("calibrate", "seconds", "calibrate ram:64M", "calibrate ram:64M --seconds 7"),
    ("calibrate", "repetitions", "calibrate ram:64M", "calibrate ram:64M --repetitions 7"),
    ("calibrate", "family", "calibrate ram:64M", "calibrate ram:64M --family nvme"),
    ("calibrate", "write", "calibrate ram:64M", "calibrate ram:64M --write"),
    ("sim", "json", "sim --seed 1 DIR/a.fio", "sim --seed 1 DIR/a.fio --json"),
    (
        "sim",
        "svg",
        "sim --seed 1 DIR/a.fio --sweep wake=fair,batch",
        "sim --seed 1 DIR/a.fio --sweep wake=fair,batch --svg a.svg",
    ),
    ("sim", "faults", "sim --seed 1 DIR/a.fio", "sim --seed 1 DIR/a.fio --faults read:io:nth=2"),
    ("lab tags", "sim", "lab tags", "lab tags --sim"),
    ("lab tags", "real", "lab tags", "lab tags --real"),
    ("lab tags", "seconds", "lab tags --real", "lab tags --real --seconds 7"),
    ("lab tags", "full", "lab tags", "lab tags --full"),
    ("lab tags", "json", "lab tags", "lab tags --json"),
    ("lab tags", "markdown", "lab tags", "lab tags --markdown"),
    ("lab", "svg", "lab --html a", "lab --html a --svg d"),
    ("lab", "html", "lab --html a", "lab --html b"),
    ("lab tags", "svg", "lab tags", "lab tags --svg d"),
    ("lab tags", "html", "lab tags", "lab tags --html p"),
    ("lab run", "svg", "lab run", "lab run --svg d"),
    ("lab run", "html", "lab run", "lab run --html p"),
    ("lab flush", "svg", "lab flush", "lab flush --svg d"),
    ("lab flush", "html", "lab flush", "lab flush --html p"),
    ("lab tags", "device", "lab tags", "lab tags --device hdd"),
    ("lab run", "sim", "lab run", "lab run --sim"),
    ("lab run", "real", "lab run", "lab run --real"),
    ("lab run", "seconds", "lab run --real", "lab run --real --seconds 7"),
    ("lab run", "json", "lab run", "lab run --json"),
    ("lab run", "markdown", "lab run", "lab run --markdown"),
    ("lab flush", "sim", "lab flush", "lab flush --sim"),
    ("lab flush", "real", "lab flush", "lab flush --real"),
    ("lab flush", "seconds", "lab flush --real", "lab flush --real --seconds 7"),
    ("lab flush", "full", "lab flush --real", "lab flush --real --full"),
    ("lab flush", "json", "lab flush", "lab flush --json"),
    ("lab flush", "markdown", "lab flush", "lab flush --markdown"),
    ("run", "policy", "run -- true", "run --policy plug=none -- true"),
    ("run", "stats", "run -- true", "run --stats - -- true"),
    ("run", "json", "run -- true", "run --json -- true"),
    ("run", "command", "run -- true", "run -- false"),
    ("trace", "socket", "trace a", "trace b"),
    ("trace", "seconds", "trace a", "trace a --for 7"),
    ("trace", "output", "trace a", "trace a --output t"),
    ("top", "socket", "top a", "top b"),
    ("top", "interval", "top a", "top a --interval 7"),
    ("top", "once", "top a", "top a --once"),
    ("top", "json", "top a", "top a --json"),
    ("top", "diskstats", "top a", "top a --diskstats"),
    ("trace report", "path", "trace report a", "trace report b"),
    ("trace report", "slowest", "trace report a", "trace report a --slowest 7"),
    ("trace report", "json", "trace report a", "trace report a --json"),
    ("help", "words", "help", "help specs"),
    ("man", "words", "man", "man bench"),
    ("man", "dir", "man", "man --dir a"),
    ("completions", "shell", "completions bash", "completions zsh"),
];

/// Returns the options of a command and of its subcommands, with the command's name.
fn options(command: &ClapCommand, name: &str) -> Vec<(String, String)> {
    let is_own = |id: &str| !matches!(id, "help" | "version");
    let ids = command.get_arguments().map(|arg| arg.get_id().as_str().to_owned());
    let own = ids.filter(|id| is_own(id)).map(|id| (name.to_owned(), id));
    let below = command.get_subcommands().flat_map(|sub| {
        let name = format!("{name} {}", sub.get_name());
        options(sub, name.trim())
    });
    own.chain(below).collect()
}

/// Returns what the program would do for these arguments, without repeating the arguments.
fn outcome(args: &str) -> Result<String, Failure> {
    let args = std::iter::once("forebay").chain(args.split(' '));
    let cli = Cli::try_parse_from(args).unwrap_or_else(|error| panic!("{error}"));
    Ok(match cli.command {
        Command::Bench { options } => panic!("{options:?}: bench has a test of its own"),
        Command::Info { spec, json } => info::describe(&spec, json)?,
        Command::Serve(args) => {
            // The descriptor of the log has another number each time.
            let options = forebay_serve::Options { log: None, ..serve::options(&args)? };
            format!("{options:?} {:?}", args.manners)
        }
        Command::Ctl(args) => format!("{args:?}"),
        Command::Control(args) => format!("{args:?}"),
        Command::Sim(args) => format!("{:?}", sim::plan(&args)?),
        // The cells of an experiment are known only when it runs, for minutes with --real. So this
        // shows only that the options are parsed.
        Command::Calibrate(args) => format!("{args:?}"),
        Command::Lab(args) => format!("{args:?}"),
        Command::Top(args) => format!("{args:?}"),
        Command::Trace(args) => format!("{args:?}"),
        Command::Run(args) => format!("{args:?}"),
        Command::Help { words } => format!("{:?}", help::page(&words, &[])?),
        Command::Man(args) => format!("{args:?}"),
        Command::Completions(args) => format!("{args:?}"),
    })
}

/// Returns a directory with two job files and two logs.
fn job_files() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (name, bs) in [("a.fio", "4k"), ("b.fio", "8k")] {
        let text = format!("[job]\nrw=randread\nbs={bs}\nsize=1m\n");
        std::fs::write(dir.path().join(name), text).expect("a file");
    }
    for (name, offset) in [("a.log", 0), ("b.log", 4096)] {
        let text = format!("fio version 3 iolog\n0 disk add\n700 disk read {offset} 4096\n");
        std::fs::write(dir.path().join(name), text).expect("a file");
    }
    dir
}

#[test]
fn every_option_of_every_command_changes_what_is_run() {
    let dir = job_files();
    let listener = UnixListener::bind(dir.path().join("s")).expect("a socket");
    let outcome = |args: &str| {
        let args = args.replace("DIR", &dir.path().display().to_string());
        let args = args.replace("LISTENER", &listener.as_raw_fd().to_string());
        outcome(&args).unwrap_or_else(|failure| panic!("{args}: {}", failure.text()))
    };
    for (command, id) in options(&Cli::command(), "") {
        // The options of bench have tables and tests of their own.
        if command == "bench" {
            continue;
        }
        let effects = EFFECTS.iter().filter(|(of, name, ..)| *of == command && *name == id);
        let mut nr = 0;
        for (.., without, with) in effects {
            assert_eq!(outcome(without), outcome(without), "{without}: differs by itself");
            assert_ne!(outcome(without), outcome(with), "{with}");
            nr += 1;
        }
        assert!(nr > 0, "{command}: {id} has no example");
    }
}

#[track_caller]
fn check(args: &str, expected: &[&str]) {
    let args: Vec<OsString> =
        std::iter::once("forebay").chain(args.split(' ')).map(OsString::from).collect();
    let error = Cli::try_parse_from(&args).expect_err("wrong usage");
    let text = usage::failure::<Cli>(error, args).text();
    let lines: Vec<_> = text.lines().collect();
    let expected: Vec<_> = expected.iter().map(|line| format!("forebay: {line}")).collect();
    assert_eq!(lines, expected);
}

#[test]
fn errors_of_command_lines_have_the_style_of_all_errors_and_come_at_once() {
    check("bnech", &["unknown command 'bnech'; did you mean 'bench'?"]);
    check(
        "zzz",
        &["unknown command 'zzz'; expected one of bench, info, serve, ctl, top, run, sim, \
             calibrate, lab, trace, help, man, completions"],
    );
    check("info ram:1M --jsn", &["unknown option --jsn; did you mean --json?"]);
    check("info ram:1M ram:2M", &["unexpected argument 'ram:2M'"]);
    check("info", &["missing argument: <SPEC>"]);
    check(
        "serve a --readonly --user=x",
        &[
            "unknown option --readonly; use --read-only",
            "unknown option --user; start the server as that user",
        ],
    );
    check(
        "lab tags --device floppy --seconds=x --fast",
        &[
            "--device=floppy: unknown value 'floppy' (accepted: hdd, ssd-sas, nvme)",
            "--seconds=x: expected a whole number from 1 to 3600",
            "unknown option --fast",
        ],
    );
    check("lab tags --sim --real", &["--sim cannot be combined with --real"]);
    check("lab tags --seconds 5", &["--seconds needs --real: virtual time has fixed lengths"]);
    check("lab run --full", &["unknown option --full"]);
    check("lab flush --full", &["--full needs --real: virtual time has fixed lengths"]);
    check("completions tcsh", &["unknown value 'tcsh' of <SHELL> (accepted: bash, fish, zsh)"]);
    let commands = "expected one of list, limits, policy, resize, add, remove, drain, \
                    reload-certificates, log-level, trace";
    check("ctl s", &[&format!("missing command; {commands}")]);
    check("ctl s zzz", &[&format!("unknown command 'zzz'; {commands}")]);
    check("ctl s resize a 1m", &["unexpected argument '1m'"]);
    check("sim --random --seeds 0", &["--seeds=0: expected a whole number, at least 1"]);
    check("serve a --threads x", &["--threads=x: expected a whole number from 1 to 4096"]);
    check("serve a --tls", &["--tls needs a value (accepted: off, on, require)"]);
    // They take more than the words that a shell completes.
    check("serve a --poll", &["--poll needs a value"]);
    check("sim --device", &["--device needs a value"]);
    check("ctl s log-level loud", &["LEVEL 'loud': expected error, warning or info"]);
}

#[test]
fn help_of_each_number_has_its_bounds() {
    for (command, option) in [
        ("serve a", "--threads"),
        ("serve a", "--max-connections"),
        ("serve a", "--memory-mib"),
        ("trace a", "--for"),
        ("sim --random", "--seeds"),
        ("sim --random", "--queue-depth"),
        ("calibrate a", "--seconds"),
        ("calibrate a", "--repetitions"),
        ("lab tags --real", "--seconds"),
    ] {
        let words = |text: &str| text.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        let args = words(&format!("forebay {command} {option} x"));
        let error = Cli::try_parse_from(&args).expect_err(option);
        let message = usage::failure::<Cli>(error, args).text();
        let bounds = message.split_once("whole number").expect(&message).1;
        let bounds = bounds.trim_start_matches([',', ' ']).trim_start_matches("from ").trim_end();
        let help = Cli::try_parse_from(words(&format!("forebay {command} --help")));
        let help = help.expect_err("a help text").render().to_string();
        let of_option = help.split_once(&format!("{option} <")).expect(option).1;
        let of_option = of_option.split("\n      --").next().expect("its text");
        let of_option = of_option.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(of_option.contains(bounds), "{option}: {of_option}: the bounds are {bounds}");
        assert!(of_option.contains("[default: "), "{option}: {of_option}");
    }
}

#[test]
fn wrong_value_of_a_repeated_option_is_reported_once() {
    let foo = "--nbd=foo: cannot listen at `foo`: an address begins with `unix:` or `tcp:`";
    let nosuch = "unknown option --nosuch";
    check("serve a --nbd unix:/tmp/a --nbd foo", &[foo]);
    check("serve a --nbd unix:/tmp/a --nbd foo --nosuch", &[nosuch, foo]);
    check("serve a --nbd=unix:/tmp/a --nbd=foo --nosuch", &[foo, nosuch]);
    check("serve a --nbd foo --nbd=foo --nosuch", &[foo, nosuch]);
    check("serve a --nosuch --nosuch --nbd foo", &[nosuch, foo]);
    let threads = "--threads=x: expected a whole number from 1 to 4096";
    check("serve a --nbd unix:/tmp/a --nbd foo --threads x", &[foo, threads]);
}
