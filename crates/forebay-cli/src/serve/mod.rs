//! `forebay serve`: a server of disks, over NBD and, to virtual machines, over vhost-user-blk.
//!
//! The server is a library. These modules are its process: options, sockets that a service manager
//! passes, signals, messages to the service manager, and the confinement.

mod activation;
mod command;
pub(crate) mod devices;
mod foreign;
mod fork;
mod limits;
mod manners;
mod notify;
mod priority;
mod sandbox;
mod share;
mod signals;
mod takeover;

use self::command::{Place, PrivateDirectory};
use self::devices::DeviceArgs;
pub(crate) use self::devices::missing_disk;
pub(crate) use self::foreign::tip;
use self::fork::Background;
use self::manners::{MannerArgs, note};
use self::notify::Manager;
use self::sandbox::confine;
use self::signals::{Reloads, StopSignals};
use crate::completed_values::completing;
use crate::descriptors::raise_nr_descriptors;
use crate::failure::Failure;
use crate::number;
use crate::output;
use clap::{Args, ValueEnum};
use forebay::{Class, OpenError, Priority};
use forebay_serve::{
    Address, ExportLimits, ExportOptions, Limits, LogFormat, LogLevel, Options, PollMode,
    ServeError, Server, TlsOptions, image_warning, last_part, metrics_address,
    survive_truncated_memory,
};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

/// Address of a server without --nbd.
const DEFAULT_SOCKET: &str = "./forebay.sock";

/// Text at the end of `forebay serve --help`.
const EXAMPLES: &str = "\
Examples:
  forebay serve disk.img                          at unix:./forebay.sock, as the default export
  forebay serve disk.img --nbd tcp:0.0.0.0 --tls require --tls-certificates pki/server
  forebay serve a.img b.img --name a --name b     two exports
  forebay serve a.img --limits iops=500,bps=20m --control run/control
  forebay serve a.img --limits bps=20m,client_weight=100   clients share 20 MiB/s equally
  forebay serve a.img --run 'nbdinfo $uri'        run a command, and end with it
  forebay serve vm.img --vhost-user-blk unix:vm.sock   a disk of a virtual machine
The server prints how to reach its disks (NBD URIs and vhost-user:PATH), and logs each connection to
standard error. It stays in the foreground, unless --fork is given. SIGTERM or SIGINT stops it, and
so does SIGHUP when its terminal is closed: it accepts no more connections, completes the requests
in flight, flushes the disks, and ends with status 0 if no write is lost. Without a terminal, or
under nohup, SIGHUP reloads the TLS certificates for new connections: replace the files in the
directory, not the directory. It also reads the sizes of files and block devices again. Virtual
machines and new NBD connections get a larger one, and connected NBD clients may use it. A smaller
one is refused.";

/// Largest memory for data in flight, MiB: a larger number is a typing error.
const MAX_MEMORY_MIB: u64 = 1 << 20;

/// Maximum number of connections, and of threads, for the same reason.
const MAX_CONNECTIONS: u64 = 1 << 20;
const MAX_THREADS: u64 = 1 << 12;

/// Longest polling of a wait, us.
const MAX_POLL_US: u64 = 1_000_000;

/// Options of `forebay serve`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Disks, as in info and bench: disk.img, /dev/vdb?direct=on, ram:2G, nbd://host/name
    #[arg(required_unless_present_any = ["blk_file", "print_capabilities"], value_name = "SPEC")]
    specs: Vec<String>,
    /// Address of the NBD server: unix:PATH or tcp:HOST[:PORT]; may be repeated [default:
    /// unix:./forebay.sock, unless a disk is served as vhost-user-blk]
    #[arg(long, value_name = "ADDRESS")]
    nbd: Vec<Address>,
    /// Name of an export; repeat it for several disks, in their order [default: a single disk is
    /// the default export; each of several disks has the last part of its path]
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// Description of an export, sent to clients; repeat it for several disks, in their order
    #[arg(long, value_name = "TEXT")]
    description: Vec<String>,
    /// Limits on the I/O of an export, such as iops=500,write_bps=10m; repeat it for several disks,
    /// in their order. Keys: iops, bps, read_iops, read_bps, write_iops, write_bps, each also with
    /// _burst, and latency_target_us. With client_ before it, a key applies to each connection, as
    /// in client_iops=100. client_weight, 1 to 10000, is the share of each connection among those
    /// of the export. A latency goal holds back owners of the same disk that have a looser goal, or
    /// none (forebay ctl SOCKET limits EXPORT --client) [default: none]
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = limits::limits)]
    limits: Vec<ExportLimits>,
    /// I/O priority of an export: realtime, best-effort or idle, perhaps with a level from 0, the
    /// highest, to 7, as in realtime/2; repeat it for several disks, in their order. Only
    /// mq-deadline and bfq order by the class [default: best-effort/4]
    #[arg(long, value_name = "CLASS[/LEVEL]", hide_possible_values = true)]
    #[arg(value_parser = completing(str::parse::<Priority>, Class::ALL.map(Class::name)))]
    priority: Vec<Priority>,
    /// Path of a control socket, in a directory that only you may enter: `forebay ctl PATH ...`
    /// manages the running server [default: none]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Serve all exports read-only; disks are opened for reading only
    #[arg(long)]
    read_only: bool,
    /// Let other programs write to the images too: a running virtual machine, or another server.
    /// The data are safe only if these programs agree on which of them writes where (the key
    /// lock=shared)
    #[arg(long)]
    shared: bool,
    /// Longest wait for I/O of a killed program that wrote to a disk before, seconds, 0 to 3600
    /// [default: 30 for disks of virtual machines, otherwise 3]
    #[arg(long, value_name = "SECONDS", value_parser = number::parse::<0, 3600>)]
    takeover_wait: Option<u64>,
    /// Use of TLS: with `on` clients may use it, with `require` they must
    #[arg(long, value_enum, default_value_t = Tls::Off, value_name = "off|on|require")]
    tls: Tls,
    /// Directory with server-cert.pem, server-key.pem and ca-cert.pem
    #[arg(long, value_name = "DIR")]
    tls_certificates: Option<PathBuf>,
    /// Require client certificates signed by ca-cert.pem
    #[arg(long)]
    tls_verify_peer: bool,
    /// Maximum number of NBD connections that have chosen an export, 1 to 1048576 [default: 100]
    #[arg(long, value_name = "N", value_parser = number::parse::<1, MAX_CONNECTIONS>)]
    max_connections: Option<u64>,
    /// Threads that serve NBD connections, 1 to 4096 [default: one per processor]
    #[arg(long, value_name = "N", value_parser = number::parse::<1, MAX_THREADS>)]
    threads: Option<u64>,
    /// Memory for data in flight on all NBD connections, MiB, 1 to 1048576 [default: 64, or more if
    /// connections and threads need it]
    #[arg(long, value_name = "N", value_parser = number::parse::<1, MAX_MEMORY_MIB>)]
    memory_mib: Option<u64>,
    /// Polling before a thread sleeps. `adaptive` polls for up to 32 us, only while requests take
    /// less time with it, and wastes at most 20 % of a processor per thread. A number polls for
    /// that many microseconds in each wait, 1 to 1000000, whatever it costs. `off` sleeps at once
    #[arg(long, default_value = "adaptive", value_name = "adaptive|off|BUDGET_US")]
    #[arg(hide_possible_values = true, value_parser = completing(poll_mode, ["adaptive", "off"]))]
    poll: PollMode,
    /// Serve metrics at this address: tcp:HOST[:PORT] or unix:PATH. /metrics returns OpenMetrics
    /// for Prometheus, /diskstats a line per export in the format of /proc/diskstats [default port:
    /// 9809; default: no metrics]
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
    /// Directory for traces: records the stages of each request of all exports, from the start on.
    /// Each trace has its own directory there, DIR/1, DIR/2 and so on. `forebay ctl SOCKET trace
    /// off` ends it, and `on` begins the next one [default: none; `forebay trace SOCKET` records
    /// without it]
    #[arg(long, value_name = "DIR")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    devices: DeviceArgs,
    #[command(flatten)]
    pub(crate) manners: MannerArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tls {
    Off,
    On,
    Require,
}

/// Parses the value of --poll.
fn poll_mode(text: &str) -> Result<PollMode, String> {
    match text {
        "off" => Ok(PollMode::Off),
        "adaptive" => Ok(PollMode::Adaptive),
        _ => match number::parse::<1, MAX_POLL_US>(text) {
            Ok(us) => Ok(PollMode::Fixed(us * 1000)),
            Err(_) => {
                Err(format!("expected adaptive, off, or microseconds from 1 to {MAX_POLL_US}"))
            }
        },
    }
}

/// Runs `forebay serve`. Returns the exit code of the process.
pub(crate) fn main(args: &ServeArgs) -> Result<ExitCode, Failure> {
    if args.devices.print_capabilities {
        return output::stdout(devices::CAPABILITIES).map(|()| ExitCode::SUCCESS);
    }
    args.manners.check()?;
    let background = if args.manners.fork { Background::enter()? } else { None };
    if args.manners.fork && background.is_none() {
        return fork::parent();
    }
    let ended = serve(args, background);
    ended.map_err(|failure| match args.manners.format() {
        LogFormat::Text => failure,
        _ => {
            note(args, LogLevel::Error, &failure.to_string());
            failure.printed()
        }
    })
}

/// Runs the server in this process.
fn serve(args: &ServeArgs, background: Option<Background>) -> Result<ExitCode, Failure> {
    let sockets = activation::sockets(&args.devices.fds())?;
    if sockets.is_empty() && args.nbd.is_empty() && args.devices.has_socket() {
        // Before `options` checks the values of NBD's options, which have no effect.
        check_without_nbd(args)?;
    }
    let mut options = Options { sockets, ..options(args)? };
    if background.as_ref().is_some_and(|background| !background.has_log()) {
        options.log = None;
    }
    let reloads = Reloads::install().map_err(|error| signals_failed(&error))?;
    let mut directory = None;
    if options.sockets.is_empty() && options.listen.is_empty() && options.devices.is_empty() {
        options.listen.push(match args.manners.run {
            Some(_) => directory.insert(PrivateDirectory::new()?).address(),
            None => Address::Unix(PathBuf::from(DEFAULT_SOCKET)),
        });
    }
    // A client of the control socket may add a device.
    if !options.devices.is_empty() || options.control.is_some() {
        survive_truncated_memory().map_err(|error| signals_failed(&error))?;
    }
    raise_nr_descriptors();
    let nr_devices = options.devices.len();
    let address = options.listen.first().cloned();
    let export = options.exports.first().map(|export| export.name.clone()).unwrap_or_default();
    let server = Server::open(options).map_err(|error| failure(&error, args))?;
    print_notices(args, &server, nr_devices);
    // A reader of the URIs may also send a signal: from here on, signals shut the server down
    // cleanly.
    let signals = StopSignals::install(&reloads).map_err(|error| signals_failed(&error))?;
    let uris = server.uris();
    // Before the command starts: an error must not leave it behind.
    let pid_file = args.manners.write_pid_file()?;
    let command = args.manners.run.as_ref().map(|text| {
        let uri = uris.first().cloned().unwrap_or_default();
        command::start(text, &Place { uri, address, export })
    });
    let command = command.transpose()?;
    if command.is_none() {
        uris.iter().try_for_each(|uri| output::stdout(&format!("{uri}\n")))?;
    }
    // Before any thread is started: a thread inherits the rights of the one that starts it.
    let mut needs = server.needs();
    needs.socket_files.extend(pid_file.iter().map(|file| file.path().to_owned()));
    let removed = directory.as_ref().map(PrivateDirectory::path);
    note(args, LogLevel::Info, &confine(&needs, removed).to_string());
    let ended = command.map(|command| signals.sender().and_then(|stop| command.watch(stop)));
    let ended = ended.transpose().map_err(|error| signals_failed(&error))?;
    let handle = server.handle();
    let reload = move || {
        notify::reloading();
        // The outcome is in the log, and a failure changes nothing.
        let _ = handle.reload();
        notify::reloaded();
    };
    reloads.start(reload).map_err(|error| signals_failed(&error))?;
    let mut manager = Manager { nr_exports: specs(args).len(), signals: &signals, background };
    server.run(&signals, &mut manager).map_err(|error| failure(&error, args))?;
    let code = ended.and_then(|ended| ended.try_recv().ok());
    Ok(code.unwrap_or(ExitCode::SUCCESS))
}

/// Prints messages and warnings about the disks.
fn print_notices(args: &ServeArgs, server: &Server, nr_devices: usize) {
    for disk in server.disks() {
        output::notices(disk.info()).iter().for_each(|text| note(args, LogLevel::Info, text));
    }
    let of_formats = specs(args).into_iter().filter_map(|spec| image_warning(&spec));
    // The devices serve the first disks.
    let devices = server.disks().take(nr_devices);
    let of_devices = devices.filter_map(|disk| takeover::warning(disk.info()));
    let of_priorities = server.disks().zip(&args.priority);
    let of_priorities =
        of_priorities.filter_map(|(disk, &priority)| priority::warning(disk.info(), priority));
    for warning in of_formats.chain(of_devices).chain(of_priorities) {
        note(args, LogLevel::Warning, &warning);
    }
}

fn signals_failed(error: &io::Error) -> Failure {
    Failure::Run(format!("cannot handle signals: {error}"))
}

/// Returns the specs of the disks.
fn specs(args: &ServeArgs) -> Vec<String> {
    args.specs.iter().chain(&args.devices.blk_file).cloned().collect()
}

/// Returns the options of the server for these arguments.
pub(crate) fn options(args: &ServeArgs) -> Result<Options, Failure> {
    let written = specs(args);
    for (option, nr) in [
        ("--name", args.name.len()),
        ("--description", args.description.len()),
        ("--limits", args.limits.len()),
        ("--priority", args.priority.len()),
    ] {
        if nr > written.len() {
            let nr_specs = written.len();
            let disks = if nr_specs == 1 { "disk" } else { "disks" };
            let why = format!("{option} is given {nr} times, for {nr_specs} {disks}");
            return Err(Failure::Usage(format!("{why}: give it at most once per disk")));
        }
    }
    let metrics = args.metrics.as_deref().map(metrics_address).transpose();
    let metrics = metrics.map_err(|error| Failure::Usage(format!("--metrics: {error}")))?;
    let specs = if args.shared { share::shared(&written)? } else { written.clone() };
    let devices = args.devices.devices(specs.len(), &args.name)?;
    let specs = match args.takeover_wait {
        None if devices.is_empty() => specs,
        None => takeover::with_wait(specs, takeover::OF_DEVICES_S, false)?,
        Some(seconds) => takeover::with_wait(specs, seconds, true)?,
    };
    let exports = specs.iter().enumerate().map(|(nr, spec)| ExportOptions {
        spec: spec.clone(),
        disk: None,
        written: Some(written[nr].clone()),
        name: args.name.get(nr).cloned().unwrap_or_else(|| default_name(spec, specs.len())),
        description: args.description.get(nr).cloned().unwrap_or_default(),
        read_only: args.read_only,
        limits: args.limits.get(nr).copied().unwrap_or_default(),
        priority: args.priority.get(nr).copied().unwrap_or_default(),
    });
    Ok(Options {
        exports: exports.collect(),
        listen: args.nbd.clone(),
        devices,
        register_memory: args.devices.register_memory,
        tls: tls(args)?,
        limits: Limits {
            connections: args
                .max_connections
                .map_or(Limits::default().connections, |nr| nr as usize),
            threads: args.threads.map_or(Limits::default().threads, |nr| nr as usize),
            memory_bytes: args.memory_mib.map(|nr| (nr as usize) << 20),
        },
        poll: args.poll,
        metrics,
        control: args.control.clone(),
        sockets: Vec::new(),
        exit_last: args.manners.exit_last,
        allowed: args.manners.allow_path.clone(),
        trace: args.trace.clone(),
        log_format: args.manners.format(),
        log_level: args.manners.log_level,
        log: std::io::stderr().as_fd().try_clone_to_owned().ok(),
    })
}

/// Refuses options that affect only NBD, which is off.
fn check_without_nbd(args: &ServeArgs) -> Result<(), Failure> {
    let given = [
        ("--description", !args.description.is_empty()),
        ("--tls", args.tls != Tls::Off),
        ("--tls-certificates", args.tls_certificates.is_some()),
        ("--tls-verify-peer", args.tls_verify_peer),
        ("--max-connections", args.max_connections.is_some()),
        ("--threads", args.threads.is_some()),
        ("--memory-mib", args.memory_mib.is_some()),
        ("--allow-path", !args.manners.allow_path.is_empty()),
        ("--run", args.manners.run.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(Failure::Usage(format!(
            "{option} is for NBD, which is off: add --nbd ADDRESS, or leave it out"
        ))),
        None => Ok(()),
    }
}

fn tls(args: &ServeArgs) -> Result<Option<TlsOptions>, Failure> {
    // Without this check a forgotten `--tls` would serve without encryption.
    if args.tls == Tls::Off && (args.tls_certificates.is_some() || args.tls_verify_peer) {
        let why = "--tls-certificates and --tls-verify-peer need TLS, which is off: add \
                   `--tls require`, or `--tls on`, which also accepts clients without TLS";
        return Err(Failure::Usage(why.to_owned()));
    }
    if args.tls == Tls::On && args.tls_verify_peer {
        let why = "with `--tls on` a client without a certificate connects without TLS: \
                   --tls-verify-peer needs `--tls require`";
        return Err(Failure::Usage(why.to_owned()));
    }
    match (args.tls, &args.tls_certificates) {
        (Tls::Off, _) => Ok(None),
        (_, None) => {
            let why = "TLS needs certificates: name their directory with --tls-certificates";
            Err(Failure::Run(why.to_owned()))
        }
        (tls, Some(folder)) => Ok(Some(TlsOptions {
            is_required: tls == Tls::Require,
            certificates: folder.clone(),
            verify_peer: args.tls_verify_peer,
        })),
    }
}

/// Returns the failure for an error of the server, with the option that helps.
fn failure(error: &ServeError, args: &ServeArgs) -> Failure {
    match error {
        ServeError::SameName(_) => {
            Failure::Usage(format!("{error}: give each SPEC a --name of its own"))
        }
        ServeError::Unreachable { spec } => Failure::Usage(format!(
            "{spec}: no client can reach this disk: give each SPEC a --vhost-user-blk of its own, \
             or add --nbd ADDRESS"
        )),
        ServeError::Writable { spec } => Failure::Usage(format!(
            "{spec}: read_only=off contradicts --read-only: leave out one of them"
        )),
        ServeError::Trace(why) => Failure::Run(format!("--trace: {why}")),
        ServeError::Memory { .. } => Failure::Usage(format!(
            "{error}: raise --memory-mib, or lower --max-connections or --threads"
        )),
        ServeError::Open { source: OpenError::NoPermission { path, access, hint }, .. }
            if hint.contains("read_only=on") =>
        {
            let one = match specs(args).len() {
                1 => "",
                _ => ", or `?read_only=on` in the SPEC of this disk",
            };
            let path = path.display();
            Failure::Run(format!(
                "{path}: no permission to {access} it: to serve it read-only, add --read-only{one}"
            ))
        }
        ServeError::Open { source, .. } => {
            let message = error.to_string().replace("read_only=on", "--read-only");
            match source {
                OpenError::Spec(_) => Failure::Usage(message),
                _ => Failure::Run(message),
            }
        }
        _ => Failure::Run(error.to_string()),
    }
}

/// Returns the default name of an export: empty for a single disk, otherwise the last part of the
/// spec.
fn default_name(spec: &str, nr_specs: usize) -> String {
    match nr_specs {
        1 => String::new(),
        _ => last_part(spec).to_owned(),
    }
}
