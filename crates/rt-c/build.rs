// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The library's name for those who are linked with it: without one they would keep the path it had
//! then. Before 1.0 each minor version has an ABI of its own; the Makefile installs it so.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libasmp_rt.so.{major}.{minor}");
}
