//! `forebay ctl` and `forebay control`: management of a running server.
//!
//! - `ctl`: the subcommands of `forebay ctl`, each a request at the control socket; `add`: the one
//!   that adds an export;
//! - this module: `forebay control`, which only has limits, and sends the same requests;
//! - `socket`: the control socket; `text`: replies for people.

mod add;
mod ctl;
mod socket;
mod text;

pub(crate) use self::ctl::{CtlArgs, main as ctl};
pub(crate) use self::socket::ask;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// The end of `forebay control --help`.
const EXAMPLES: &str = "\
Examples:
  forebay control run/control                       all exports, their limits and their I/O
  forebay control run/control vm1 iops=500 bps=20m  set two limits of the export vm1
  forebay control run/control vm1 iops=0            remove one of them
  forebay control run/control '' read_bps=1g        the export without a name
  forebay control run/control vm1 client_iops=100   a limit of each client of vm1 by itself
  forebay control run/control vm1 --client 7 weight=500   the share of connection 7 alone
forebay ctl has these and further commands. The server was started with --control run/control, by
the same user. The keys are those of forebay serve --limits. I/O that waits is checked against the
new limits. For programs: the socket takes lines of JSON (docs/guide.md).";

/// Options of `forebay control`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ControlArgs {
    /// Path of the server's control socket
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,
    /// Name of an export [default: all]
    #[arg(value_name = "EXPORT")]
    export: Option<String>,
    /// Limits to set: iops, bps, read_iops, read_bps, write_iops, write_bps, each with _burst, and
    /// latency_target_us; each also with client_, for each client by itself; and client_weight
    #[arg(value_name = "KEY=VALUE")]
    limits: Vec<String>,
    /// Number of a connection, as in the log: set its limits alone, until it is closed. The keys
    /// are those of clients, without client_
    #[arg(long, value_name = "NUMBER", requires = "export")]
    client: Option<u64>,
    /// Print the reply of the server as it is
    #[arg(long)]
    json: bool,
}

/// Runs `forebay control`.
pub(crate) fn main(args: &ControlArgs) -> Result<(), Failure> {
    print(&ask(&args.socket, &request(args)?, &[])?, args.json)
}

/// Prints a reply: the exports in it, or all of it as JSON.
fn print(reply: &Value, json: bool) -> Result<(), Failure> {
    output::stdout(&if json { format!("{reply}\n") } else { text::of(reply) })
}

/// Returns the request for these arguments.
fn request(args: &ControlArgs) -> Result<Value, Failure> {
    let Some(export) = &args.export else { return Ok(json!({ "command": "exports" })) };
    limits(export, &args.limits, args.client)
}

/// Returns the request that shows or sets limits.
fn limits(export: &str, limits: &[String], client: Option<u64>) -> Result<Value, Failure> {
    let mut request = json!({ "command": "limits", "export": export });
    let set = pairs(limits, "a limit is KEY=VALUE, such as iops=500")?;
    if let Some(client) = client {
        if set.is_empty() {
            let why = format!("--client {client}: expected limits to set, such as iops=500");
            return Err(Failure::Usage(why));
        }
        request["client"] = client.into();
    }
    if !set.is_empty() {
        request["set"] = set.into();
    }
    Ok(request)
}

/// Parses arguments KEY=VALUE.
fn pairs(words: &[String], expected: &str) -> Result<Map<String, Value>, Failure> {
    let pair = |word: &String| {
        let pair = word.split_once('=');
        let (key, value) = pair.ok_or_else(|| Failure::Usage(format!("{word}: {expected}")))?;
        Ok((key.to_owned(), Value::from(value)))
    };
    words.iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> ControlArgs {
        let (export, limits) = match words {
            [] => (None, Vec::new()),
            [export, limits @ ..] => {
                (Some((*export).to_owned()), limits.iter().map(|&it| it.to_owned()).collect())
            }
        };
        ControlArgs { socket: "s".into(), export, limits, client: None, json: false }
    }

    #[test]
    fn request_names_the_export_and_its_limits() {
        for (words, expected) in [
            (&[][..], json!({"command": "exports"})),
            (&["a"][..], json!({"command": "limits", "export": "a"})),
            (
                &["", "iops=5", "bps=1m"][..],
                json!({"command": "limits", "export": "", "set": {"iops": "5", "bps": "1m"}}),
            ),
        ] {
            assert_eq!(request(&args(words)).expect("good arguments"), expected);
        }
        assert!(request(&args(&["a", "iops"])).is_err());
        let of_client = |words: &[&str]| ControlArgs { client: Some(7), ..args(words) };
        assert_eq!(
            request(&of_client(&["a", "weight=5"])).expect("good arguments"),
            json!({"command": "limits", "export": "a", "client": 7, "set": {"weight": "5"}}),
        );
        let error = request(&of_client(&["a"])).expect_err("nothing to set").to_string();
        assert_eq!(error, "--client 7: expected limits to set, such as iops=500");
    }
}
