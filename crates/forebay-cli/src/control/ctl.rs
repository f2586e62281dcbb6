//! `forebay ctl`: one subcommand for each request at the control socket.

use super::add::{self, AddArgs, Passed};
use super::socket::Connection;
use super::{limits, pairs, print};
use crate::completed_values::completing;
use crate::failure::Failure;
use crate::output;
use clap::{Args, Subcommand, ValueEnum};
use forebay_insight::socket_file;
use forebay_serve::LogLevel;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The end of `forebay ctl --help`.
const EXAMPLES: &str = "\
Examples:
  forebay ctl run/control list                      all exports, their limits and clients
  forebay ctl run/control limits vm1 iops=500 bps=20m
  forebay ctl run/control policy vm1 nr_requests=32
  truncate -s 20G vm1.img && forebay ctl run/control resize vm1
  forebay ctl run/control add vm2 vm2.img?direct=on
  forebay ctl run/control add vm3 vm3.img --vhost-user-blk unix:vm3.sock
  forebay ctl run/control remove vm2                waits until its clients have disconnected
  forebay ctl run/control trace off                 ends the trace of serve --trace
  forebay ctl run/control drain                     the server stops after its last client
The server was started with --control run/control, by the same user. EXPORT is the name that clients
use. The default export has none: write '', or, except for remove, the name that forebay top shows,
such as a.img. For programs: the socket takes lines of JSON (docs/guide.md).";

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
    /// Add an export for NBD clients, or for a virtual machine. A file is opened by this command,
    /// with your rights, and passed to the server, even if Landlock forbids the server to open it.
    /// The same is true of the socket of a device
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
        /// Disconnect the clients when their requests in flight have completing, as SIGTERM does
        #[arg(long)]
        force: bool,
    },
    /// Reload the TLS certificates. New connections use them
    ReloadCertificates,
    /// Show or set the lowest severity that the server logs: error, warning or info
    LogLevel {
        /// Lowest severity to log
        #[arg(value_name = "LEVEL", hide_possible_values = true)]
        #[arg(value_parser = completing(str::parse::<LogLevel>, LogLevel::ALL.map(LogLevel::name)))]
        level: Option<LogLevel>,
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

/// Runs `forebay ctl`.
pub(crate) fn main(args: &CtlArgs) -> Result<(), Failure> {
    let mut request = request(&args.command)?;
    // Before the files are opened, because they may use up the descriptors.
    let server = Connection::open(&args.socket)?;
    let mut passed = Passed::default();
    if let Command::Add(add) = &args.command {
        passed = Passed::open(add)?;
        request["descriptors"] = passed.descriptors().len().into();
    }
    let reply = server.exchange(&request, &passed.descriptors());
    let is_refused = |reply: &Value| reply["error"].is_string() && reply["added"] != true;
    // Without a reply, the server may listen there.
    if !reply.as_ref().is_ok_and(is_refused) {
        passed.keep_socket();
    }
    let reply = reply?;
    remove_sockets(&reply);
    // With --json, it is in the reply.
    if let Some(warning) = reply["warning"].as_str().filter(|_| !args.json) {
        output::stderr(&format!("forebay: warning: {warning}\n"));
    }
    print(&server.result(reply)?, args.json)
}

/// Removes the sockets of devices that were removed with their export. The server cannot remove
/// those that `add` has created if it is confined.
fn remove_sockets(reply: &Value) {
    let sockets = reply["sockets"].as_array();
    for path in sockets.into_iter().flatten().filter_map(Value::as_str) {
        // It fails if the server has removed it, or if another server listens there now.
        let _ = socket_file::remove(Path::new(path));
    }
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
        Command::Add(add) => add::request(add)?,
        Command::Remove { export, force } => {
            json!({ "command": "remove", "export": export, "force": force })
        }
        Command::Drain { force } => json!({ "command": "drain", "force": force }),
        Command::ReloadCertificates => json!({ "command": "reload-certificates" }),
        Command::LogLevel { level: None } => json!({ "command": "log-level" }),
        Command::LogLevel { level: Some(level) } => {
            json!({ "command": "log-level", "level": level.name() })
        }
        Command::Trace { switch: None } => json!({ "command": "trace" }),
        Command::Trace { switch: Some(switch) } => {
            json!({ "command": "trace", "on": *switch == Switch::On })
        }
    })
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
            (
                "add a-name-of-more-than-20-bytes ram:1M --vhost-user-blk unix:s --num-queues 2 \
                 --queue-size 64 --block-size 4096",
                json!({
                    "command": "add", "export": "a-name-of-more-than-20-bytes", "spec": "ram:1M",
                    "read_only": false, "limits": {}, "vhost_user_blk": {
                        "num_queues": 2, "queue_size": 64, "block_size": 4096,
                        "serial": "a-name-of-more-than-",
                    },
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
}
