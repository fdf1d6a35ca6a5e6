// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs with file capabilities.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// As setcap(8) writes `cap_sys_nice+ep`: struct vfs_cap_data, revision 2, effective, with bit 23
/// permitted. Errors: `Unsupported` (the file system takes none).
pub fn set(program: &Path) -> io::Result<()> {
    let words: [u32; 5] = [0x0200_0001, 1 << 23, 0, 0, 0];
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let path = std::ffi::CString::new(program.as_os_str().as_bytes())?;
    let (name, bytes) = (c"security.capability".as_ptr(), value.as_ptr().cast());
    // SAFETY: two C strings and bytes of ours, which outlive the call.
    match unsafe { libc::setxattr(path.as_ptr(), name, bytes, value.len(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
