// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of RTLinux that no program of user space can have: they compile, and end the program at
//! their first use.

use std::ffi::{CStr, c_char};

/// Prints `rtlinux: NAME: WHY`, one line, to stderr and aborts the program. The headers call it for
/// names that docs/rtlinux.md lists as refused.
///
/// # Safety
/// Both are C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtl_refuse_np(name: *const c_char, why: *const c_char) -> ! {
    // SAFETY: C strings by the caller's word.
    let [name, why] = [name, why].map(|text| unsafe { CStr::from_ptr(text) }.to_string_lossy());
    refuse(&name, &why)
}

/// The same from Rust.
pub fn refuse(name: &str, why: &str) -> ! {
    eprintln!("rtlinux: {name}: {why}");
    std::process::abort()
}
