//! Options of other NBD servers, with the equivalents of this one.

const TCP: &str = "use --nbd tcp:HOST:PORT";
const UNIX: &str = "use --nbd unix:PATH";
const NO_FORMAT: &str = "every image is served as raw; qemu-nbd serves other formats";
const NO_PART: &str = "a part of a disk is served through a loop device: `losetup --show --find \
                       --offset BYTES --sizelimit BYTES FILE`";

/// Options of qemu-nbd and nbdkit that have another name here, or do not exist.
const OPTIONS: &[(&[&str], &str)] = &[
    (&["--port", "-p", "--bind", "-b", "--ip-addr", "--ipaddr", "-i", "--listen", "-l"], TCP),
    (&["--socket", "-k", "--unix", "-U"], UNIX),
    (&["--daemon", "--daemonize", "--background", "-d"], "use --fork"),
    (&["--foreground", "-f", "--persistent", "-t"], "leave it out: this is the default"),
    (&["--pidfile", "-P"], "use --pid-file"),
    (&["--export-name", "--exportname", "-x", "-e"], "use --name"),
    (&["--readonly", "-r"], "use --read-only"),
    (&["--format"], NO_FORMAT),
    (&["--offset", "-o", "--partition"], NO_PART),
    (&["--snapshot", "-s", "--load-snapshot"], NO_FORMAT),
    (&["--cache", "--nocache", "-n"], "use a key of the spec: disk.img?direct=on"),
    (&["--aio"], "use a key of the spec: disk.img?engine=aio"),
    (&["--tls-creds", "--tls-cert-dir"], "use --tls require --tls-certificates DIR"),
    (&["--tls-psk"], "keys that both sides share (PSK) are not supported: use certificates"),
    (&["--exit-with-parent"], "use --exit-last, or stop the server by SIGTERM"),
    (&["--connect", "-c"], "use nbd-client, which connects a /dev/nbdN to a server"),
    (&["--user", "-u", "--group", "-g"], "start the server as that user"),
    (&["--verbose", "-v", "--log"], "leave it out: the log goes to standard error"),
    (&["--quiet"], "use --log-level error"),
];

/// Returns the equivalent of an option of another server.
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
