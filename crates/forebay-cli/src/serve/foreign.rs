//! Options of other NBD servers, and what to use here.

const TCP: &str = "use --nbd tcp:HOST:PORT";
const UNIX: &str = "use --nbd unix:PATH";
const BACKGROUND: &str = "forebay serve stays in the foreground: let a service manager start it, \
                          or `setsid --fork forebay serve ...`";
const NO_FORMAT: &str = "every image is served as raw; qemu-nbd serves other formats";
const NO_PART: &str = "a part of a disk is served through a loop device: `losetup --show --find \
                       --offset BYTES --sizelimit BYTES FILE`";

/// Options of qemu-nbd and nbdkit that have another name here, or none.
const OPTIONS: &[(&[&str], &str)] = &[
    (&["--port", "-p", "--bind", "-b", "--ip-addr", "--ipaddr", "-i", "--listen", "-l"], TCP),
    (&["--socket", "-k", "--unix", "-U"], UNIX),
    (&["--fork", "--daemon", "--daemonize", "--background", "-d"], BACKGROUND),
    (&["--foreground", "-f", "--persistent", "-t"], "leave it out: forebay serve always does so"),
    (
        &["--pid-file", "--pidfile", "-P"],
        "forebay serve writes no PID file: a shell has the number in $!, systemd in $MAINPID",
    ),
    (&["--export-name", "--exportname", "-x", "-e"], "use --name"),
    (&["--readonly", "-r"], "use --read-only"),
    (&["--format"], NO_FORMAT),
    (&["--offset", "-o", "--partition"], NO_PART),
    (&["--snapshot", "-s", "--load-snapshot"], NO_FORMAT),
    (&["--cache", "--nocache", "-n"], "use a key of the spec: disk.img?direct=on"),
    (&["--aio"], "use a key of the spec: disk.img?engine=aio"),
    (&["--tls-creds", "--tls-cert-dir"], "use --tls require --tls-certificates DIR"),
    (&["--tls-psk"], "keys that both sides share (PSK) are not supported: use certificates"),
    (&["--run", "--exit-with-parent", "--exit-last"], "start the server, and stop it by SIGTERM"),
    (&["--connect", "-c"], "use nbd-client, which connects a /dev/nbdN to a server"),
    (&["--user", "-u", "--group", "-g"], "start the server as that user"),
    (&["--verbose", "-v", "--log", "--quiet"], "leave it out: the log goes to standard error"),
];

/// Returns what to use instead of an option of another server.
pub(crate) fn tip(option: &str) -> Option<&'static str> {
    let name = option.split('=').next()?;
    OPTIONS.iter().find(|(names, _)| names.contains(&name)).map(|(_, tip)| *tip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_stands_in_the_table_once() {
        let mut names: Vec<_> = OPTIONS.iter().flat_map(|(names, _)| *names).collect();
        let nr = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), nr);
        assert!(tip("--port=10809").is_some_and(|tip| tip.contains("--nbd tcp:")));
        assert_eq!(tip("--ports"), None);
    }
}
