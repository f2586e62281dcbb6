//! Gives the shared library its name for the dynamic linker.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a build script talks to cargo through its output")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Programs that are linked with this version need the same ABI, which the number stands for.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libforebay.so.0");
}
