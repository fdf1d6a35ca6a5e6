// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the page is: a name that no server had before, and both addresses that it leads to.
//!
//! Problem:  another user may have served a page at the same port before, and left a service worker
//!           or a cache in the browser, which belong to the name and port of the address. And a
//!           browser that looks for 127.0.0.1 by a name may try ::1 first, where that user listens.
//! Approach: browsers lead each name below `localhost` to this machine (RFC 6761, 6.3), so each
//!           start takes one of its own. Both addresses are taken, or none.

use crate::gate::random;
use rustix::io::Errno;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

/// Of a port that is free on 127.0.0.1 and taken on ::1.
const TRIES: usize = 100;

/// Listens from now on.
#[derive(Debug)]
pub struct Place {
    pub(crate) listeners: Vec<TcpListener>,
    pub(crate) host: String,
    port: u16,
}

impl Place {
    /// At this port; 0: at any that is free. Errors: those of bind(2).
    pub fn take(port: u16) -> io::Result<Self> {
        let mut tries = 0;
        let listeners = loop {
            tries += 1;
            match both(port) {
                Err(error) if port == 0 && tries < TRIES && is_taken(&error) => {}
                listeners => break listeners?,
            }
        };
        let port = listeners[0].local_addr()?.port();
        Ok(Self { listeners, host: format!("{}.localhost", random::<8>()?), port })
    }

    /// As `Host` names it.
    pub(crate) fn authority(&self) -> String {
        match self.port {
            // A browser leaves out the port of HTTP.
            80 => self.host.clone(),
            port => format!("{}:{port}", self.host),
        }
    }

    /// The address of the page.
    pub fn url(&self) -> String {
        format!("http://{}/", self.authority())
    }
}

fn is_taken(error: &io::Error) -> bool {
    error.kind() == ErrorKind::AddrInUse
}

fn has_no_ipv6(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT))
}

fn both(port: u16) -> io::Result<Vec<TcpListener>> {
    let first = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let port = first.local_addr()?.port();
    match TcpListener::bind(SocketAddr::from((Ipv6Addr::LOCALHOST, port))) {
        Ok(second) => Ok(vec![first, second]),
        // This machine has no IPv6, and so no other program has the address.
        Err(error) if has_no_ipv6(&error) => Ok(vec![first]),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_start_has_a_name_of_its_own_and_both_addresses() {
        let [one, other] = [Place::take(0).unwrap(), Place::take(0).unwrap()];
        assert_ne!(one.host, other.host);
        assert_eq!(one.host.len(), 16 + ".localhost".len());
        let url = one.url();
        assert!(url.starts_with("http://") && url.ends_with(&format!(".localhost:{}/", one.port)));
        let again = Place::take(one.port).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AddrInUse);
    }

    #[test]
    fn a_port_whose_second_address_is_taken_is_not_used() {
        let Ok(squatter) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) else {
            println!("skipped: ::1: no such address on this machine");
            return;
        };
        let port = squatter.local_addr().unwrap().port();
        assert_eq!(Place::take(port).unwrap_err().kind(), ErrorKind::AddrInUse);
        // And what was taken of it is given back.
        drop(squatter);
        Place::take(port).unwrap();
    }
}
