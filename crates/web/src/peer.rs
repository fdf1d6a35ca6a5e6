// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which user is at the other end of a connection of this machine.
//!
//! Source: Linux, Documentation/networking/proc_net_tcp.rst. Each socket has a line with its two
//! addresses, its state, the user who made it, and its inode.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// In the order in which they are looked through.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

/// The user of the socket with the address `peer` that is connected to our address `own`. `None`:
/// it is closed already. Errors: the kernel's table cannot be read.
pub fn user_of(peer: SocketAddr, own: SocketAddr) -> io::Result<Option<u32>> {
    // A line of the table may be passed over while others come and go.
    for _ in 0..2 {
        for table in TABLES {
            let text = match fs::read_to_string(table) {
                // A kernel without IPv6.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                read => read?,
            };
            if let Some(user) = find(&text, peer, own) {
                return Ok(Some(user));
            }
        }
    }
    Ok(None)
}

/// What is left of one that its program has closed has user 0 in place of its own, and no inode: it
/// does not count.
fn find(table: &str, peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let (theirs, ours) = (written(peer), written(own));
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_it = theirs
            .iter()
            .zip(&ours)
            .any(|(theirs, ours)| fields.get(1..3).is_some_and(|of| of == [theirs.as_str(), ours]));
        let has_inode = fields.get(9).is_some_and(|inode| *inode != "0");
        (is_it && has_inode).then(|| fields[7].parse().ok()).flatten()
    })
}

/// An address as the tables have it: 32 bits at a time, as a number of this machine. One of IPv4
/// also as a socket of IPv6 has it.
fn written(address: SocketAddr) -> Vec<String> {
    let words = |octets: &[u8]| -> String {
        let words = octets.as_chunks::<4>().0.iter();
        words.map(|word| format!("{:08X}", u32::from_ne_bytes(*word))).collect()
    };
    let addresses = match address.ip() {
        IpAddr::V4(ip) => vec![words(&ip.octets()), words(&ip.to_ipv6_mapped().octets())],
        IpAddr::V6(ip) => vec![words(&ip.octets())],
    };
    addresses.iter().map(|one| format!("{one}:{:04X}", address.port())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Shutdown, TcpListener, TcpStream};

    #[test]
    fn the_user_of_a_connection_is_found_until_it_is_closed() {
        let me = rustix::process::geteuid().as_raw();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                println!("skipped: {address}: no such address on this machine");
                continue;
            };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (own, peer) = listener.accept().unwrap();
            let user = || user_of(peer, own.local_addr().unwrap()).unwrap();
            assert_eq!(user(), Some(me), "{address}");
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(user(), Some(me), "{address}, which sends nothing more");
            drop(client);
            assert_eq!(user(), None, "{address}");
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn only_the_line_of_the_other_end_while_it_is_open_counts() {
        let (peer, own) = ("127.0.0.1:43981".parse().unwrap(), "127.0.0.1:8080".parse().unwrap());
        let line = |addresses: &str, state: &str, inode: &str| {
            format!(
                "  sl  local_address rem_address ...\n   7: {addresses} {state} \
                     00000000:00000000 00:00000000 00000000  1000        0 {inode} 2 0\n"
            )
        };
        let theirs = "0100007F:ABCD 0100007F:1F90";
        assert_eq!(find(&line(theirs, "01", "77"), peer, own), Some(1000));
        let mapped = "0000000000000000FFFF00000100007F:ABCD 0000000000000000FFFF00000100007F:1F90";
        assert_eq!(find(&line(mapped, "01", "77"), peer, own), Some(1000));
        for (addresses, state, inode) in [
            ("0100007F:1F90 0100007F:ABCD", "01", "77"),
            ("0100007F:ABCD 0200007F:1F90", "01", "77"),
            ("0100007F:ABCE 0100007F:1F90", "01", "77"),
            (theirs, "06", "0"),
            (theirs, "05", "0"),
            (theirs, "", ""),
        ] {
            assert_eq!(
                find(&line(addresses, state, inode), peer, own),
                None,
                "{addresses} {state}"
            );
        }
    }
}
