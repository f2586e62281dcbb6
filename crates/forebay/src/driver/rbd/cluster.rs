//! Connection to a Ceph cluster, and a pool of it.
// It calls librados.
#![allow(unsafe_code)]

use super::Access;
use super::api::{Api, Handle};
use super::target::Target;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::ptr;

/// The time limits of operations, unless the configuration sets them. Without a limit, librados
/// waits forever for a cluster that has gone.
const TIMEOUT_S: u64 = 30;

/// The options for these limits: of an operation at an OSD, and at a monitor.
const TIMEOUTS: [&CStr; 2] = [c"rados_osd_op_timeout", c"rados_mon_op_timeout"];

/// The time limit of the connection itself, and its default in Ceph.
const MOUNT_TIMEOUT: &CStr = c"client_mount_timeout";
const MOUNT_TIMEOUT_DEFAULT_S: f64 = 300.0;

/// The longest value of an option that is read, bytes.
const VALUE_MAX: usize = 1 << 20;

/// The reason why something cannot be opened, with an errno.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) why: String,
    pub(super) errno: i32,
}

impl Refused {
    pub(super) fn new(result: c_int, why: impl Into<String>) -> Refused {
        Refused { why: why.into(), errno: -result }
    }

    /// Returns the reason for an error without a remedy of its own.
    pub(super) fn of_call(call: &str, result: c_int) -> Refused {
        Refused::new(result, format!("{call}: {}", text_of(result)))
    }
}

/// Returns the system's text for a negative result.
pub(super) fn text_of(result: c_int) -> std::io::Error {
    std::io::Error::from_raw_os_error(-result)
}

/// A connection, and the pool and namespace of an image.
pub(super) struct Cluster {
    api: &'static Api,
    handle: Handle,
    /// Null until the pool is open.
    pool: Handle,
    /// The time limit of an operation at an OSD, seconds; 0: none.
    pub(super) op_timeout_s: u64,
}

// SAFETY: librados serializes the use of its handles.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

impl Cluster {
    /// Connects to the cluster of a configuration, and opens a pool. `timeout_s` limits operations,
    /// instead of the configuration.
    ///
    /// # Errors
    /// Returns the reason, and what to do.
    pub(super) fn connect(
        api: &'static Api,
        target: &Target,
        access: &Access,
        timeout_s: Option<u64>,
    ) -> Result<Cluster, Refused> {
        let id = access.id.as_deref().unwrap_or(c"admin");
        let client = CString::new([b"client.", id.to_bytes()].concat()).expect("no null byte");
        let mut handle = ptr::null_mut();
        // SAFETY: the strings end with a null byte, and librados copies them.
        let created =
            unsafe { (api.rados_create2)(&raw mut handle, c"ceph".as_ptr(), client.as_ptr(), 0) };
        if created < 0 {
            return Err(Refused::of_call("rados_create2", created));
        }
        let mut cluster = Cluster { api, handle, pool: ptr::null_mut(), op_timeout_s: 0 };
        cluster.configure(access, timeout_s)?;
        // SAFETY: the handle is valid, and is connected only here.
        let connected = unsafe { (api.rados_connect)(cluster.handle) };
        if connected < 0 {
            return Err(cluster.no_connection(connected, id));
        }
        cluster.open_pool(target)?;
        Ok(cluster)
    }

    /// Reads the configuration, and sets the limits that it does not set.
    fn configure(&mut self, access: &Access, timeout_s: Option<u64>) -> Result<(), Refused> {
        let conf = access.conf.as_deref();
        // SAFETY: the handle is valid. A null pointer stands for the default paths.
        let read = unsafe {
            (self.api.rados_conf_read_file)(self.handle, conf.map_or(ptr::null(), CStr::as_ptr))
        };
        if read < 0 {
            return Err(not_read(read, conf));
        }
        // SAFETY: the handle is valid. A null pointer stands for CEPH_ARGS.
        let parsed = unsafe { (self.api.rados_conf_parse_env)(self.handle, ptr::null()) };
        if parsed < 0 {
            return Err(Refused::new(parsed, format!("CEPH_ARGS is invalid: {}", text_of(parsed))));
        }
        if let Some(keyring) = &access.keyring {
            self.set(c"keyring", keyring)?;
        }
        let number = |number: u64| CString::new(number.to_string()).expect("digits");
        for option in TIMEOUTS {
            let is_set = self.seconds(option).is_some_and(|seconds| seconds != 0.0);
            if timeout_s.is_some() || !is_set {
                self.set(option, &number(timeout_s.unwrap_or(TIMEOUT_S)))?;
            }
        }
        self.op_timeout_s = self.seconds(TIMEOUTS[0]).map_or(0, |seconds| seconds.ceil() as u64);
        if self.seconds(MOUNT_TIMEOUT) == Some(MOUNT_TIMEOUT_DEFAULT_S) {
            self.set(MOUNT_TIMEOUT, &number(TIMEOUT_S.max(timeout_s.unwrap_or(0))))?;
        }
        Ok(())
    }

    fn set(&self, option: &CStr, value: &CStr) -> Result<(), Refused> {
        // SAFETY: the handle is valid, and librados copies the strings.
        let result =
            unsafe { (self.api.rados_conf_set)(self.handle, option.as_ptr(), value.as_ptr()) };
        match result {
            0.. => Ok(()),
            _ => {
                let assignment =
                    format!("{}={}", option.to_string_lossy(), value.to_string_lossy());
                Err(Refused::new(result, format!("{assignment}: {}", text_of(result))))
            }
        }
    }

    /// Returns the value of an option that is a time, in seconds. Versions of Ceph differ in its
    /// format.
    fn seconds(&self, option: &CStr) -> Option<f64> {
        self.get(option)?.parse().ok()
    }

    /// Returns the value of an option of the configuration.
    pub(super) fn get(&self, option: &CStr) -> Option<String> {
        let mut value = vec![0_u8; 256];
        loop {
            let place = value.as_mut_ptr().cast::<c_char>();
            // SAFETY: the handle is valid, and the length is that of the vector.
            let result = unsafe {
                (self.api.rados_conf_get)(self.handle, option.as_ptr(), place, value.len())
            };
            match -result {
                libc::ENAMETOOLONG | libc::ERANGE if value.len() < VALUE_MAX => {
                    value.resize(value.len() * 4, 0);
                }
                ..=0 => break,
                _ => return None,
            }
        }
        let text = CStr::from_bytes_until_nul(&value).ok()?;
        Some(text.to_string_lossy().into_owned())
    }

    fn no_connection(&self, result: c_int, id: &CStr) -> Refused {
        let hosts = self.get(c"mon_host").unwrap_or_default();
        let keyring = self.get(c"keyring").unwrap_or_default();
        let client = format!("client.{}", id.to_string_lossy());
        let why = match -result {
            libc::ETIMEDOUT => format!(
                "the monitors ({hosts}) do not answer: start the cluster, or check mon_host of the \
                 configuration"
            ),
            libc::EACCES | libc::EPERM => format!(
                "the cluster refuses the key of {client}: check id= and keyring= ({keyring})"
            ),
            libc::ENOENT if hosts.is_empty() => {
                String::from("the configuration names no monitors: set mon_host")
            }
            libc::ENOENT => {
                format!("no key of {client} was found ({keyring}): name its file with keyring=PATH")
            }
            _ => {
                format!("cannot connect to the cluster ({hosts}) as {client}: {}", text_of(result))
            }
        };
        Refused::new(result, why)
    }

    fn open_pool(&mut self, target: &Target) -> Result<(), Refused> {
        let mut pool = ptr::null_mut();
        // SAFETY: the handle is connected, and the name ends with a null byte.
        let result = unsafe {
            (self.api.rados_ioctx_create)(self.handle, target.pool.as_ptr(), &raw mut pool)
        };
        if result < 0 {
            let name = target.pool.to_string_lossy();
            return Err(match -result {
                libc::ENOENT => Refused::new(
                    result,
                    format!("the cluster has no pool {name} (`ceph osd pool ls` lists them)"),
                ),
                _ => Refused::new(
                    result,
                    format!("cannot open the pool {name}: {}", text_of(result)),
                ),
            });
        }
        self.pool = pool;
        if let Some(namespace) = &target.namespace {
            // SAFETY: the pool is open, and librados copies the name.
            unsafe { (self.api.rados_ioctx_set_namespace)(self.pool, namespace.as_ptr()) };
        }
        Ok(())
    }

    /// Returns whether the pool exists. Waits for a monitor if the newest map that the cluster has
    /// sent lacks the pool.
    pub(super) fn has_pool(&self) -> bool {
        let mut name = [0 as c_char; 256];
        // SAFETY: the cluster is connected, the pool is open, and the length is that of the array.
        let result = unsafe {
            let id = (self.api.rados_ioctx_get_id)(self.pool);
            (self.api.rados_pool_reverse_lookup)(self.handle, id, name.as_mut_ptr(), name.len())
        };
        result != -libc::ENOENT
    }

    /// Returns the pool and namespace, as `rados_ioctx_t`. It is open as long as the connection.
    pub(super) fn pool(&self) -> Handle {
        self.pool
    }
}

/// Returns the reason why a configuration, or that at the default paths, is not used.
fn not_read(result: c_int, conf: Option<&CStr>) -> Refused {
    let error = text_of(result);
    let why = match conf {
        Some(path) => {
            format!("the configuration {} cannot be read: {error}", path.to_string_lossy())
        }
        None if result == -libc::ENOENT => String::from(
            "no Ceph configuration file exists at the default paths, such as /etc/ceph/ceph.conf: \
             name one with conf=PATH",
        ),
        None => format!(
            "the Ceph configuration file at the default paths, such as /etc/ceph/ceph.conf, cannot \
             be read: {error}"
        ),
    };
    Refused::new(result, why)
}

impl Drop for Cluster {
    /// Ends the connection. No image may be open.
    fn drop(&mut self) {
        // SAFETY: both handles are valid, or the pool is null; no other code uses them any more.
        unsafe {
            if !self.pool.is_null() {
                (self.api.rados_ioctx_destroy)(self.pool);
            }
            (self.api.rados_shutdown)(self.handle);
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_that_cannot_be_read_is_not_reported_as_missing() {
        let why = |errno: c_int, conf| not_read(-errno, conf).why;
        assert!(why(libc::ENOENT, None).starts_with("no Ceph configuration file exists"));
        let text = why(libc::EACCES, None);
        assert!(text.ends_with("cannot be read: Permission denied (os error 13)"), "{text}");
        let text = why(libc::EINVAL, Some(c"/x"));
        assert!(text.starts_with("the configuration /x cannot be read: Invalid"), "{text}");
    }
}
