//! `forebay control`: shows and changes the limits of a running server.

use crate::failure::Failure;
use crate::output;
use clap::Args;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The end of `forebay control --help`.
const EXAMPLES: &str = "\
Examples:
  forebay control run/control                       all exports, their limits and their I/O
  forebay control run/control vm1 iops=500 bps=20m  set two limits of the export vm1
  forebay control run/control vm1 iops=0            remove one of them
  forebay control run/control '' read_bps=1g        the export without a name
  forebay control run/control vm1 client_iops=100   a limit of each client of vm1 by itself
  forebay control run/control vm1 --client 7 weight=500   the share of connection 7 alone
The server was started with --control run/control, by the same user. The keys are those of
forebay serve --limits. I/O that waits is checked against the new limits. For programs: the socket
takes lines of JSON (docs/guide.md).";

/// Longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(10);

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
    let reply = ask(&args.socket, &request(args)?)?;
    if args.json {
        return output::stdout(&format!("{reply}\n"));
    }
    let all = reply["exports"].as_array().cloned().unwrap_or_else(|| vec![reply]);
    output::stdout(&all.iter().map(text).collect::<String>())
}

/// Returns the request for these arguments.
fn request(args: &ControlArgs) -> Result<Value, Failure> {
    let Some(export) = &args.export else { return Ok(json!({ "command": "exports" })) };
    let mut request = json!({ "command": "limits", "export": export });
    let pair = |text: &String| {
        let (key, value) = text.split_once('=').ok_or_else(|| {
            Failure::Usage(format!("{text}: a limit is KEY=VALUE, such as iops=500"))
        })?;
        Ok((key.to_owned(), Value::from(value)))
    };
    let set = args.limits.iter().map(pair).collect::<Result<Map<_, _>, Failure>>()?;
    if let Some(client) = args.client {
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

/// Sends a request and returns the reply.
fn ask(path: &Path, request: &Value) -> Result<Value, Failure> {
    let failed = |what: &str, why: &dyn std::fmt::Display| {
        Failure::Run(format!("{}: {what}: {why}", path.display()))
    };
    let socket = UnixStream::connect(path).map_err(|error| {
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "run this as the user of the server, or as root".to_owned()
            }
            _ => format!("start the server with --control {}", path.display()),
        };
        failed("cannot connect to the control socket", &format!("{error}: {remedy}"))
    })?;
    let mut line = String::new();
    let mut exchange = || {
        socket.set_read_timeout(Some(PATIENCE))?;
        (&socket).write_all(format!("{request}\n").as_bytes())?;
        BufReader::new(&socket).read_line(&mut line)
    };
    let received = exchange().map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            failed("no reply from the server", &format!("it took longer than {PATIENCE:?}"))
        }
        _ => failed("no reply from the server", &error),
    })?;
    if received == 0 {
        let why = "it closed the connection: check that it still runs";
        return Err(failed("no reply from the server", &why));
    }
    let reply: Value =
        serde_json::from_str(&line).map_err(|error| failed("not a control socket", &error))?;
    match reply["error"].as_str() {
        Some(error) => Err(failed("refused", &error)),
        None => Ok(reply),
    }
}

/// Returns the description of an export.
fn text(export: &Value) -> String {
    let mut text = format!("export {}\n", export["export"]);
    let _ = writeln!(text, "  limits  {}", limits(&export["limits"]));
    let stat = |key: &str| export["stats"][key].as_u64().unwrap_or_default();
    if stat("ios") > 0 {
        let _ = writeln!(text, "  I/O     {}", io(&export["stats"], " since the first limit"));
    }
    if stat("missed_windows") > 0 {
        let _ = writeln!(text, "  goal    missed in {} windows", stat("missed_windows"));
    }
    if stat("depth") > 0 {
        let _ = writeln!(text, "  depth   {} for the goals of others", stat("depth"));
    }
    let all = export["clients"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().filter(|client| client["stats"].is_object()).for_each(|it| client(&mut text, it));
    let nr_more = export["nr_clients"].as_u64().unwrap_or_default() as usize;
    if nr_more > all.len() {
        let _ = writeln!(text, "  and {} more clients", nr_more - all.len());
    }
    text
}

/// Appends the description of a client.
fn client(text: &mut String, client: &Value) {
    let number = client["client"].as_u64().unwrap_or_default();
    let peer = client["peer"].as_str().unwrap_or_default();
    let stats = &client["stats"];
    let _ = write!(text, "  client {number} from {peer}: {}", io(stats, " I/Os"));
    if let Some(depth) = stats["depth"].as_u64() {
        let _ = write!(text, "; depth {depth} for the goals of others");
    }
    if let Some(missed) = stats["missed_windows"].as_u64().filter(|missed| *missed > 0) {
        let _ = write!(text, "; goal missed in {missed} windows");
    }
    if client["limits"].is_object() {
        let _ = write!(text, "; its own limits: {}", limits(&client["limits"]));
    }
    text.push('\n');
}

/// Returns the limits that are set.
fn limits(limits: &Value) -> String {
    let limits = limits.as_object().into_iter().flatten();
    let limits: Vec<_> = limits.map(|(key, value)| format!("{key}={value}")).collect();
    if limits.is_empty() { "none".to_owned() } else { limits.join(" ") }
}

/// Returns a description of counters.
fn io(stats: &Value, unit: &str) -> String {
    let stat = |key: &str| stats[key].as_u64().unwrap_or_default();
    let waits = |cause: &str, what: &str| {
        let nr = stat(&format!("{cause}_waits"));
        let ms = stat(&format!("{cause}_wait_ns")) / nr.max(1) / 1_000_000;
        format!("; {nr} waited {what}, {ms} ms on average")
    };
    let (ios, bytes) = (stat("ios"), stat("bytes"));
    let mut text = format!("{ios}{unit}, {bytes} bytes");
    text += &waits("limit", "for a limit");
    text += &waits("tag", "for a tag");
    if stat("scheduler_waits") > 0 {
        text += &waits("scheduler", "in the scheduler");
    }
    text
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

    #[test]
    fn description_has_limits_and_io() {
        let export = json!({
            "export": "a", "limits": {"iops": 5, "bps": 100},
            "stats": {"ios": 7, "bytes": 4096, "limit_waits": 2, "limit_wait_ns": 8_000_000},
        });
        let expected = "export \"a\"\n  limits  iops=5 bps=100\n  I/O     7 since the first limit, \
                        4096 bytes; 2 waited for a limit, 4 ms on average; 0 waited for a \
                        tag, 0 ms on average\n";
        assert_eq!(text(&export), expected);
        let goals = json!({
            "export": "", "limits": {}, "stats": {"ios": 0, "missed_windows": 3, "depth": 16},
        });
        let expected = "export \"\"\n  limits  none\n  goal    missed in 3 windows\n  depth   16 \
                        for the goals of others\n";
        assert_eq!(text(&goals), expected);
        let clients = json!({
            "export": "", "limits": {"client_iops": 5}, "stats": {"ios": 0}, "nr_clients": 9,
            "clients": [
                {"client": 3, "peer": "unix", "stats": null},
                {"client": 7, "peer": "unix", "limits": {"weight": 5}, "stats": {
                    "ios": 1, "bytes": 512, "limit_waits": 0, "limit_wait_ns": 0, "tag_waits": 1,
                    "tag_wait_ns": 2_500_000, "scheduler_waits": 2,
                    "scheduler_wait_ns": 18_000_000, "missed_windows": 4, "depth": 8,
                }},
            ],
        });
        let expected = "export \"\"\n  limits  client_iops=5\n  client 7 from unix: 1 I/Os, 512 \
                        bytes; 0 waited for a limit, 0 ms on average; 1 waited for a tag, 2 ms on \
                        average; 2 waited in the scheduler, 9 ms on average; \
                        depth 8 for the goals of others; goal missed in 4 windows; its own limits: \
                        weight=5\n  and 7 more clients\n";
        assert_eq!(text(&clients), expected);
        let idle = json!({"export": "", "limits": {}, "stats": {"ios": 0, "depth": null}});
        assert_eq!(text(&idle), "export \"\"\n  limits  none\n");
    }
}
