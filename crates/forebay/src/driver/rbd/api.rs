//! The functions of librados and librbd that the driver calls, loaded at run time.
//!
//! Neither the build nor the program needs Ceph: the library is loaded when a disk with this driver
//! is opened. It is never unloaded, because its threads continue after the last image is closed.
//!
//! Source: `rados/librados.h`, `rbd/librbd.h` of Ceph. The declarations are those of 12.2
//! (Luminous) and later. A function that came later is optional.
// Declarations of a C library, and their addresses.
#![allow(unsafe_code)]

use libloading::Library;
use std::ffi::{c_char, c_int, c_void};
use std::mem;
use std::sync::OnceLock;

/// The name of the library. Its number is that of the ABI, the same since 2010. The loader finds
/// librados through it, because librbd needs that too.
const LIBRARY: &str = "librbd.so.1";

/// `rados_t`, `rados_ioctx_t`, `rbd_image_t` and `rbd_completion_t`.
pub(super) type Handle = *mut c_void;

/// `rbd_callback_t`: the completion of an operation, and the argument that it was created with.
pub(super) type Callback = extern "C" fn(Handle, *mut c_void);

/// The callback of `rbd_diff_iterate2`: offset, length, whether there is data, and the argument.
pub(super) type DiffCallback = extern "C" fn(u64, usize, c_int, *mut c_void) -> c_int;

/// `LIBRADOS_OP_FLAG_FADVISE_FUA`: a cache that honours it ends the write when the OSD has
/// answered.
pub(super) const FADVISE_FUA: c_int = 0x80;

/// `RBD_LOCK_MODE_EXCLUSIVE`.
pub(super) const LOCK_EXCLUSIVE: c_int = 0;

/// `rbd_image_info_t`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct ImageInfo {
    pub(super) size: u64,
    pub(super) obj_size: u64,
    pub(super) num_objs: u64,
    pub(super) order: c_int,
    block_name_prefix: [c_char; 24],
    parent_pool: i64,
    parent_name: [c_char; 96],
}

impl ImageInfo {
    pub(super) const EMPTY: ImageInfo = ImageInfo {
        size: 0,
        obj_size: 0,
        num_objs: 0,
        order: 0,
        block_name_prefix: [0; 24],
        parent_pool: 0,
        parent_name: [0; 96],
    };

    /// Returns whether both are of one image: the names of its objects contain the image's id.
    pub(super) fn has_data_of(&self, other: &ImageInfo) -> bool {
        self.block_name_prefix == other.block_name_prefix
    }
}

/// `rbd_config_option_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct ConfigOption {
    pub(super) name: *mut c_char,
    pub(super) value: *mut c_char,
    source: c_int,
}

impl ConfigOption {
    pub(super) const EMPTY: ConfigOption =
        ConfigOption { name: std::ptr::null_mut(), value: std::ptr::null_mut(), source: 0 };
}

/// Declares the functions, and loads them by their names.
macro_rules! functions {
    (
        required { $($name:ident($($arg:ty),*) -> $ret:ty;)+ }
        optional { $($later:ident($($later_arg:ty),*) -> $later_ret:ty;)+ }
    ) => {
        /// Addresses of the functions.
        pub(super) struct Api {
            $(pub(super) $name: unsafe extern "C" fn($($arg),*) -> $ret,)+
            $(pub(super) $later: Option<unsafe extern "C" fn($($later_arg),*) -> $later_ret>,)+
        }

        impl Api {
            /// Finds the functions in a library.
            ///
            /// # Errors
            /// Returns the name of the first one that is missing.
            fn find(library: &Library) -> Result<Api, &'static str> {
                // SAFETY: the types are those of the declarations in Ceph's headers. The addresses
                // stay valid, because the library is never unloaded.
                unsafe {
                    Ok(Api {
                        $($name: *library
                            .get(concat!(stringify!($name), "\0"))
                            .map_err(|_| stringify!($name))?,)+
                        $($later: library
                            .get(concat!(stringify!($later), "\0"))
                            .ok()
                            .map(|found| *found),)+
                    })
                }
            }
        }
    };
}

functions! {
    required {
        rados_create2(*mut Handle, *const c_char, *const c_char, u64) -> c_int;
        rados_conf_read_file(Handle, *const c_char) -> c_int;
        rados_conf_parse_env(Handle, *const c_char) -> c_int;
        rados_conf_set(Handle, *const c_char, *const c_char) -> c_int;
        rados_conf_get(Handle, *const c_char, *mut c_char, usize) -> c_int;
        rados_connect(Handle) -> c_int;
        rados_shutdown(Handle) -> ();
        rados_ioctx_create(Handle, *const c_char, *mut Handle) -> c_int;
        rados_ioctx_set_namespace(Handle, *const c_char) -> ();
        rados_ioctx_get_id(Handle) -> i64;
        rados_ioctx_destroy(Handle) -> ();
        rados_pool_reverse_lookup(Handle, i64, *mut c_char, usize) -> c_int;
        rbd_version(*mut c_int, *mut c_int, *mut c_int) -> ();
        rbd_open(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
        rbd_open_read_only(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
        rbd_close(Handle) -> c_int;
        rbd_stat(Handle, *mut ImageInfo, usize) -> c_int;
        rbd_get_size(Handle, *mut u64) -> c_int;
        rbd_get_features(Handle, *mut u64) -> c_int;
        rbd_aio_create_completion(*mut c_void, Callback, *mut Handle) -> c_int;
        rbd_aio_get_return_value(Handle) -> isize;
        rbd_aio_release(Handle) -> ();
        rbd_aio_readv(Handle, *const libc::iovec, c_int, u64, Handle) -> c_int;
        rbd_aio_writev(Handle, *const libc::iovec, c_int, u64, Handle) -> c_int;
        rbd_aio_write2(Handle, u64, usize, *const c_char, Handle, c_int) -> c_int;
        rbd_aio_flush(Handle, Handle) -> c_int;
        rbd_aio_discard(Handle, u64, u64, Handle) -> c_int;
        rbd_diff_iterate2(
            Handle, *const c_char, u64, u64, u8, u8, DiffCallback, *mut c_void
        ) -> c_int;
        rbd_lock_acquire(Handle, c_int) -> c_int;
        rbd_is_exclusive_lock_owner(Handle, *mut c_int) -> c_int;
    }
    optional {
        // 14.2 (Nautilus).
        rbd_config_image_list(Handle, *mut ConfigOption, *mut c_int) -> c_int;
        rbd_config_image_list_cleanup(*mut ConfigOption, c_int) -> ();
        // 16.2 (Pacific).
        rbd_aio_write_zeroes(Handle, u64, usize, Handle, c_int, c_int) -> c_int;
    }
}

impl Api {
    /// Returns the functions, and loads the library if no disk has loaded it before.
    ///
    /// # Errors
    /// Returns why it cannot be loaded, and what to do.
    pub(super) fn get() -> Result<&'static Api, String> {
        static API: OnceLock<Api> = OnceLock::new();
        match API.get() {
            Some(api) => Ok(api),
            None => Api::load(LIBRARY).map(|api| API.get_or_init(|| api)),
        }
    }

    /// Loads a library, which stays loaded.
    fn load(name: &str) -> Result<Api, String> {
        if cfg!(target_feature = "crt-static") {
            return Err(format!(
                "cannot load {name}: this program is linked statically, and such a program loads \
                 no libraries: use one that is linked dynamically, such as the Debian package's"
            ));
        }
        // SAFETY: Ceph's library may be initialized in any thread at any time. Another one with the
        // same name runs code that the administrator has installed under that name.
        let library = unsafe { Library::new(name) }.map_err(|error| {
            let why = std::error::Error::source(&error)
                .map_or_else(|| error.to_string(), |source| source.to_string());
            format!(
                "cannot load {name}: {why}: install Ceph's client library (package librbd1; \
                 ceph-libs on Arch)"
            )
        })?;
        let api = Api::find(&library).map_err(|function| {
            format!("{name} has no function {function}: install librbd1 12.2 or later")
        });
        // It may have started threads.
        mem::forget(library);
        api
    }

    /// Returns the version of the interface, such as 1.16.0.
    pub(super) fn version(&self) -> String {
        let (mut major, mut minor, mut extra) = (0, 0, 0);
        // SAFETY: the call writes to the three numbers.
        unsafe { (self.rbd_version)(&raw mut major, &raw mut minor, &raw mut extra) };
        format!("{major}.{minor}.{extra}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_library_is_named_with_its_package() {
        let error = Api::load("librbd-missing.so.1").err().expect("there is none");
        assert!(error.starts_with("cannot load librbd-missing.so.1: librbd-missing"), "{error}");
        assert!(error.ends_with("(package librbd1; ceph-libs on Arch)"), "{error}");
    }

    #[test]
    fn library_without_the_functions_is_refused() {
        let error = Api::load("libc.so.6").err().expect("it is another library");
        assert_eq!(error, "libc.so.6 has no function rados_create2: install librbd1 12.2 or later");
    }
}
