// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that a command writes where its user says. Root may write into a directory of another
//! user, who may have put a link or a FIFO there: such a link is not followed, and no FIFO waited
//! for.

use crate::file::wrong;
use anyhow::Result;
use asmp_host::store::replace_file;
use clap::builder::{PathBufValueParser, TypedValueParser};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// Where this fails, a file that existed keeps its content and no partial file remains. What a link
/// leads to (`/dev/stdout` is one) and a device are written in place. A link of another user, a
/// FIFO and the like are refused. Errors have exit code 40.
pub fn write(path: &Path, text: &str) -> Result<()> {
    write_bytes(path, text.as_bytes())
}

/// The same of bytes that are no text.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> Result<()> {
    // SAFETY: geteuid takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    let target = target(path, user).map_err(|reason| wrong(path, &reason))?;
    let written = match target {
        Target::Whole => replace_file(path, bytes, 0o666),
        Target::Opened(path) => std::fs::write(path, bytes),
        Target::Behind(path) => write_behind(&path, bytes),
    };
    written.map_err(|error| wrong(path, &format!("cannot be written: {error}")))
}

/// The name of a drawing, as an option's `value_parser`. We draw SVG: a name that says otherwise is
/// refused, before anything is computed.
pub fn svg_file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.extension() {
        Some(end) if OTHER_PICTURES.iter().any(|other| end.eq_ignore_ascii_case(other)) => {
            let svg = path.with_extension("svg");
            Err(format!("asmp draws SVG: write {}, and convert it (rsvg-convert)", svg.display()))
        }
        _ => Ok(path),
    })
}

const OTHER_PICTURES: [&str; 8] = ["png", "jpg", "jpeg", "gif", "webp", "bmp", "pdf", "eps"];

#[derive(Debug, PartialEq, Eq)]
enum Target {
    /// A regular file, or nothing yet: it is replaced whole.
    Whole,
    /// A device, or a descriptor of this process.
    Opened(PathBuf),
    /// What is at the end of links.
    Behind(PathBuf),
}

/// Where a path leads for that user. Errors: why it is not written to, with the cure.
fn target(path: &Path, user: u32) -> Result<Target, String> {
    let mut at = path.to_owned();
    for turn in 0..MOST_LINKS {
        // What the user, or a link that is trusted, names on purpose.
        if is_descriptor(&at) {
            return Ok(Target::Opened(at));
        }
        let above = at.ancestors().skip(1).map(|dir| (dir, dir.symlink_metadata()));
        for (dir, about) in above {
            about.map_or(Ok(()), |about| trusted(dir, &about, user))?;
        }
        let about = match at.symlink_metadata() {
            Ok(about) => about,
            // It is made, or the way there is wrong, which the attempt tells.
            Err(_) => return Ok(if turn == 0 { Target::Whole } else { Target::Behind(at) }),
        };
        trusted(&at, &about, user)?;
        let kind = about.file_type();
        match () {
            () if kind.is_symlink() => {
                let to = at.read_link().map_err(|error| format!("cannot be read: {error}"))?;
                at = at.parent().unwrap_or(Path::new("")).join(to);
            }
            () if kind.is_file() || kind.is_dir() => {
                return Ok(if turn == 0 { Target::Whole } else { Target::Behind(at) });
            }
            () if kind.is_char_device() && at.starts_with("/dev") => {
                return Ok(Target::Opened(at));
            }
            () => return Err(NO_FILE.to_owned()),
        }
    }
    Err("leads from link to link without end: name another file".to_owned())
}

/// Of a FIFO, a socket, a disk.
const NO_FILE: &str = "is no regular file, and may never be read: name another file, or \
                       /dev/stdout and a pipe behind it";

/// Refuses a link that another user has made, and may lead elsewhere at any time.
fn trusted(path: &Path, about: &Metadata, user: u32) -> Result<(), String> {
    match about.is_symlink() && ![0, user].contains(&about.uid()) {
        true => Err(format!(
            "link {} is of user {}, and only links of root and your own are followed: name what \
             it leads to, or another file",
            path.display(),
            about.uid()
        )),
        false => Ok(()),
    }
}

/// A name of what this process has open, such as /dev/stdout and what a shell puts for `>(…)`.
fn is_descriptor(path: &Path) -> bool {
    let is_std = ["/dev/stdout", "/dev/stderr"].iter().any(|name| path == Path::new(name));
    let dirs = ["/dev/fd", "/proc/self/fd", "/proc/thread-self/fd"];
    is_std || path.parent().is_some_and(|dir| dirs.iter().any(|name| dir == Path::new(name)))
}

/// The last name is no link: one that has come since is not followed, and a FIFO not waited for.
fn write_behind(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).create(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mut file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, NO_FILE));
    }
    file.set_len(0)?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::{BAD_FILE, code_of};
    use std::os::unix::fs::symlink;

    const OTHER: u32 = 1_234_567;

    #[test]
    fn a_link_of_another_user_is_not_followed_wherever_it_stands_in_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("page.html"));
        let sub = dir.path().join("sub");
        std::fs::write(&file, "theirs").unwrap();
        symlink(&file, &link).unwrap();
        symlink(dir.path(), &sub).unwrap();
        let own = link.symlink_metadata().unwrap().uid();
        assert_eq!(target(&link, own), Ok(Target::Behind(file.clone())));
        assert_eq!(target(&file, own), Ok(Target::Whole));
        assert_eq!(target(&sub.join("new"), own), Ok(Target::Whole));
        if own != 0 {
            println!("skipped: only root may make links of another user");
            return;
        }
        for link in [&link, &sub] {
            std::os::unix::fs::lchown(link, Some(OTHER), None).unwrap();
        }
        for path in [link.clone(), sub.join("new"), sub.join("file"), sub.join("page.html")] {
            let refused = write(&path, "mine").unwrap_err();
            let words = format!("{refused:#}");
            assert_eq!(code_of(&refused), BAD_FILE);
            assert!(words.contains(" is of user 1234567, and only") && words.contains("name what"));
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "theirs");
        // For that user it is one of their own.
        assert_eq!(target(&link, OTHER), Ok(Target::Behind(file)));
        // A link of root's own that leads to one of that user.
        let way = dir.path().join("way");
        symlink("page.html", &way).unwrap();
        assert!(target(&way, 0).unwrap_err().contains("page.html is of user"));
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("page.html");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        let link = dir.path().join("link");
        symlink(&fifo, &link).unwrap();
        for path in [&fifo, &link] {
            let refused = format!("{:#}", write(path, "text").unwrap_err());
            assert!(refused.contains("no regular file") && refused.contains("/dev/stdout"));
        }
        assert_eq!(write_behind(&fifo, b"").unwrap_err().raw_os_error(), Some(libc::ENXIO));
        let circle = dir.path().join("circle");
        symlink(&circle, &circle).unwrap();
        assert!(target(&circle, 0).is_err());
    }

    #[test]
    fn a_device_and_a_descriptor_that_were_named_are_written_in_place() {
        // SAFETY: geteuid takes nothing and cannot fail.
        let user = unsafe { libc::geteuid() };
        for name in ["/dev/null", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
            let opened = Ok(Target::Opened(PathBuf::from(name)));
            assert_eq!(target(Path::new(name), user), opened, "{name}");
        }
        write(Path::new("/dev/null"), "text").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("output");
        symlink("/proc/self/fd/1", &link).unwrap();
        assert_eq!(target(&link, user), Ok(Target::Opened("/proc/self/fd/1".into())));
        // A link of one's own to nothing makes what it leads to.
        let (file, link) = (dir.path().join("made"), dir.path().join("link"));
        symlink("made", &link).unwrap();
        write(&link, "text").unwrap();
        write(&link, "new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
    }
}
