//! `forebay ctl`: one subcommand for each request at the control socket.

use super::socket::MAX_DESCRIPTORS;
use super::{ask, limits, pairs, print};
use crate::failure::Failure;
use clap::{Args, Subcommand, ValueEnum};
use forebay::{Priority, Spec};
use rustix::fs::OFlags;
use serde_json::{Map, Value, json};
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// The end of `forebay ctl --help`.
const EXAMPLES: &str = "\
Examples:
  forebay ctl run/control list                      all exports, their limits and clients
  forebay ctl run/control limits vm1 iops=500 bps=20m
  forebay ctl run/control policy vm1 scheduler=mq-deadline
  truncate -s 20G vm1.img && forebay ctl run/control resize vm1
  forebay ctl run/control add vm2 vm2.img?direct=on
  forebay ctl run/control remove vm2                waits until its clients have disconnected
  forebay ctl run/control trace off                 ends the trace of serve --trace
  forebay ctl run/control drain                     the server stops after its last client
The server was started with --control run/control, by the same user. For programs: the socket takes
lines of JSON (docs/guide.md).";

/// Options of `forebay ctl`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
#[command(disable_help_subcommand = true)]
pub(crate) struct CtlArgs {
    /// Path of the server's control socket
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,
    /// Print the reply of the server as it is
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show all exports: their disks, limits, I/O and clients; and whether a trace runs
    List,
    /// Show or set the limits of an export, or of one of its clients
    Limits {
        /// Name of an export
        #[arg(value_name = "EXPORT")]
        export: String,
        /// Limits to set, with the keys of forebay serve --limits
        #[arg(value_name = "KEY=VALUE")]
        limits: Vec<String>,
        /// Number of a connection, as in the log: set its limits alone, until it is closed. The
        /// keys are those of clients, without client_
        #[arg(long, value_name = "NUMBER")]
        client: Option<u64>,
    },
    /// Show or change the settings of a disk that can change while it is in use: scheduler and its
    /// keys, nr_requests, weight_by and its costs
    Policy {
        /// Name of an export
        #[arg(value_name = "EXPORT")]
        export: String,
        /// Settings to change, with the keys of specs (forebay help policies)
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Read the size of a disk again after it has grown. Virtual machines see the new size at once,
    /// NBD clients when they reconnect
    Resize {
        /// Name of an export [default: all]
        #[arg(value_name = "EXPORT")]
        export: Option<String>,
    },
    /// Add an export for NBD clients. A file is opened by this command, with your rights, and
    /// passed to the server, even if Landlock forbids the server to open it
    Add(AddArgs),
    /// Remove an export when its clients have disconnected, then flush and close its disk. New
    /// clients can no longer open it
    Remove {
        /// Name of an export
        #[arg(value_name = "EXPORT")]
        export: String,
        /// Disconnect its clients when their requests in flight have completed
        #[arg(long)]
        force: bool,
    },
    /// Stop the server when its clients have disconnected. It accepts no new connections
    Drain {
        /// Disconnect the clients when their requests in flight have completed, as SIGTERM does
        #[arg(long)]
        force: bool,
    },
    /// Reload the TLS certificates. New connections use them
    ReloadCertificates,
    /// Show or set the lowest severity that the server logs: error, warning or info
    LogLevel {
        /// Lowest severity to log
        #[arg(value_name = "LEVEL")]
        level: Option<String>,
    },
    /// Show whether a trace runs, begin the next one in the directory of serve --trace, or end it.
    /// It records all exports, also those that are added later
    Trace {
        /// on: begin the next trace; off: end it [default: show the state]
        #[arg(value_name = "on|off")]
        switch: Option<Switch>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// Options of `forebay ctl add`.
#[derive(Args, Debug)]
struct AddArgs {
    /// Name of the export
    #[arg(value_name = "NAME")]
    name: String,
    /// The disk, as in forebay serve
    #[arg(value_name = "SPEC")]
    spec: String,
    /// Description, sent to clients
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Refuse writes, and open the disk for reading only
    #[arg(long)]
    read_only: bool,
    /// Limits, as in forebay serve: iops=500,client_bps=10m
    #[arg(long, value_name = "KEY=VALUE,...")]
    limits: Option<String>,
    /// I/O priority, as in forebay serve
    #[arg(long, value_name = "CLASS[/LEVEL]")]
    priority: Option<Priority>,
    /// Let the server open the file, by its path: it must be below a directory of --allow-path
    #[arg(long)]
    by_path: bool,
}

/// Runs `forebay ctl`.
pub(crate) fn main(args: &CtlArgs) -> Result<(), Failure> {
    let request = request(&args.command)?;
    let files = match &args.command {
        Command::Add(add) if !add.by_path => open(add)?,
        _ => Vec::new(),
    };
    let descriptors: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    print(&ask(&args.socket, &request, &descriptors)?, args.json)
}

/// Returns the request of a command.
fn request(command: &Command) -> Result<Value, Failure> {
    Ok(match command {
        Command::List => json!({ "command": "exports" }),
        Command::Limits { export, limits: set, client } => limits(export, set, *client)?,
        Command::Policy { export, settings } => {
            let set = pairs(settings, "a setting is KEY=VALUE, such as scheduler=bfq")?;
            json!({ "command": "policy", "export": export, "set": set })
        }
        Command::Resize { export: None } => json!({ "command": "resize" }),
        Command::Resize { export } => json!({ "command": "resize", "export": export }),
        Command::Add(add) => request_to_add(add)?,
        Command::Remove { export, force } => {
            json!({ "command": "remove", "export": export, "force": force })
        }
        Command::Drain { force } => json!({ "command": "drain", "force": force }),
        Command::ReloadCertificates => json!({ "command": "reload-certificates" }),
        Command::LogLevel { level: None } => json!({ "command": "log-level" }),
        Command::LogLevel { level } => json!({ "command": "log-level", "level": level }),
        Command::Trace { switch: None } => json!({ "command": "trace" }),
        Command::Trace { switch: Some(switch) } => {
            json!({ "command": "trace", "on": *switch == Switch::On })
        }
    })
}

fn request_to_add(add: &AddArgs) -> Result<Value, Failure> {
    let AddArgs { name, spec, description, read_only, limits, priority, .. } = add;
    let limits: Vec<_> = limits.iter().flat_map(|text| text.split(',')).collect();
    let limits: Vec<_> = limits.into_iter().filter(|it| !it.is_empty()).map(Into::into).collect();
    let mut fields = Map::new();
    for (key, value) in [
        ("command", "add".into()),
        ("export", name.as_str().into()),
        ("spec", spec.as_str().into()),
        ("read_only", (*read_only).into()),
        ("limits", pairs(&limits, "a limit is KEY=VALUE, such as iops=500")?.into()),
    ] {
        fields.insert(key.to_owned(), value);
    }
    if let Some(text) = description {
        fields.insert("description".to_owned(), text.as_str().into());
    }
    if let Some(priority) = priority {
        fields.insert("priority".to_owned(), format!("{priority:?}").into());
    }
    Ok(fields.into())
}

/// Opens the file of a disk as often as a request may have descriptors: each thread of the server
/// needs an open file of its own, and the server closes those that are left. Empty: the disk has
/// no file, or it is below a disk of another driver, which opens the file itself.
fn open(add: &AddArgs) -> Result<Vec<File>, Failure> {
    let spec = Spec::parse(&add.spec);
    let spec = spec.map_err(|error| Failure::Usage(error.to_string()))?;
    let takes_descriptor = matches!(spec.driver(), "file" | "aio" | "psync");
    let Some(path) = spec.file().filter(|_| takes_descriptor) else {
        return Ok(Vec::new());
    };
    let read_only = add.read_only || spec.switch("read_only") == Some(true);
    let flags = if spec.switch("direct") == Some(true) { OFlags::DIRECT } else { OFlags::empty() };
    let mut options = OpenOptions::new();
    let options = options.read(true).write(!read_only).custom_flags(flags.bits() as i32);
    let open = |_| {
        options
            .open(&path)
            .map_err(|error| Failure::Run(format!("{}: cannot open it: {error}", path.display())))
    };
    (0..MAX_DESCRIPTORS).map(open).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Ctl {
        #[command(flatten)]
        args: CtlArgs,
    }

    fn request_of(words: &str) -> Value {
        let words = ["ctl", "s"].into_iter().chain(words.split(' '));
        request(&Ctl::try_parse_from(words).expect("good arguments").args.command).expect("good")
    }

    #[test]
    fn each_command_is_a_request() {
        for (words, expected) in [
            ("list", json!({"command": "exports"})),
            ("limits a", json!({"command": "limits", "export": "a"})),
            (
                "limits a --client 7 weight=5",
                json!({"command": "limits", "export": "a", "client": 7, "set": {"weight": "5"}}),
            ),
            (
                "policy a scheduler=bfq",
                json!({"command": "policy", "export": "a", "set": {"scheduler": "bfq"}}),
            ),
            ("resize", json!({"command": "resize"})),
            ("resize a", json!({"command": "resize", "export": "a"})),
            (
                "add a ram:1M --limits iops=5,bps=1m --priority idle --read-only --description d",
                json!({
                    "command": "add", "export": "a", "spec": "ram:1M", "read_only": true,
                    "limits": {"iops": "5", "bps": "1m"}, "priority": "idle/4", "description": "d",
                }),
            ),
            ("remove a --force", json!({"command": "remove", "export": "a", "force": true})),
            ("drain", json!({"command": "drain", "force": false})),
            ("reload-certificates", json!({"command": "reload-certificates"})),
            ("trace", json!({"command": "trace"})),
            ("trace on", json!({"command": "trace", "on": true})),
            ("trace off", json!({"command": "trace", "on": false})),
            ("log-level warning", json!({"command": "log-level", "level": "warning"})),
        ] {
            assert_eq!(request_of(words), expected, "{words}");
        }
        let words = ["ctl", "s", "limits", "a", "iops"];
        let command = Ctl::try_parse_from(words).expect("parsed later").args.command;
        assert!(request(&command).is_err());
    }

    #[test]
    fn only_files_are_opened_here() {
        let add = |spec: &str| AddArgs {
            name: "a".to_owned(),
            spec: spec.to_owned(),
            description: None,
            read_only: true,
            limits: None,
            priority: None,
            by_path: false,
        };
        for spec in ["ram:1M", "null:1M", "fault:Cargo.toml"] {
            assert!(open(&add(spec)).expect("no file").is_empty(), "{spec}");
        }
        for spec in ["Cargo.toml", "psync:Cargo.toml"] {
            assert_eq!(open(&add(spec)).expect("a file").len(), MAX_DESCRIPTORS, "{spec}");
        }
        let missing = open(&add("nowhere.img")).expect_err("no file").to_string();
        assert!(missing.starts_with("nowhere.img: cannot open it: No such file"), "{missing}");
    }
}
