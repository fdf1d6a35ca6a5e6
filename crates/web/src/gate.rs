// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is let in. Pure, but for the token's making.
//!
//! - The Host must be this server's: a page of another site can have its own name resolve to
//!   127.0.0.1 (DNS rebinding).
//! - An Origin, where there is one, must be this server's: a page of another site may ask, and not
//!   read.
//! - All but the page's own files needs the token, as `Authorization: Bearer`. No other page can
//!   send that, and no other user has it.

use axum::http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use std::fmt;

/// What lets a browser in: 32 random bytes, in hexadecimal.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// From the kernel's random numbers. Errors: the kernel has none.
    pub fn new() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        let mut filled = 0;
        while filled < bytes.len() {
            let flags = rustix::rand::GetRandomFlags::empty();
            filled += rustix::rand::getrandom(&mut bytes[filled..], flags)?;
        }
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// For the address that is printed, and for nothing else.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Takes as long for any other token of this length.
    fn is(&self, other: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differs = |all, (a, b): (&u8, &u8)| all | (a ^ b);
        own.len() == other.len() && own.iter().zip(other).fold(0, differs) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// What a request must have.
#[derive(Debug, Clone)]
pub struct Gate {
    pub port: u16,
    pub token: Token,
}

/// Why a request is refused.
pub type Closed = (StatusCode, &'static str);

impl Gate {
    /// Lets a request for the page's own files in. Errors: of a wrong Host or Origin.
    pub fn let_in(&self, headers: &HeaderMap) -> Result<(), Closed> {
        let host = only(headers, &HOST).filter(|host| self.is_own(host));
        if host.is_none() {
            let words = "another host or port than asmp web printed: use that address; with ssh \
                         -L, use the same port on both sides";
            return Err((StatusCode::MISDIRECTED_REQUEST, words));
        }
        let is_own = |origin: &str| origin.strip_prefix("http://").is_some_and(|o| self.is_own(o));
        if headers.contains_key(ORIGIN) && !only(headers, &ORIGIN).is_some_and(is_own) {
            return Err((StatusCode::FORBIDDEN, "another page asks"));
        }
        Ok(())
    }

    /// The same of a request for anything else. Errors: also of a wrong token.
    pub fn let_in_with_token(&self, headers: &HeaderMap) -> Result<(), Closed> {
        self.let_in(headers)?;
        let token = only(headers, &AUTHORIZATION).and_then(|text| text.strip_prefix("Bearer "));
        match token.is_some_and(|token| self.token.is(token.as_bytes())) {
            true => Ok(()),
            false => Err((StatusCode::UNAUTHORIZED, "open the address that asmp web printed")),
        }
    }

    /// A browser leaves the port out where it is that of HTTP.
    fn is_own(&self, host: &str) -> bool {
        ["127.0.0.1", "localhost"].iter().any(|name| {
            let rest = host.strip_prefix(name);
            rest.is_some_and(|rest| match rest.strip_prefix(':') {
                Some(port) => port == self.port.to_string(),
                None => rest.is_empty() && self.port == 80,
            })
        })
    }
}

/// The value of a header that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?.to_str().ok()?;
    all.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(port: u16) -> Gate {
        Gate { port, token: Token("0123456789abcdef".repeat(4)) }
    }

    fn headers(all: &[(HeaderName, &str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn tokens_are_long_and_never_the_same() {
        let [a, b] = [Token::new().unwrap(), Token::new().unwrap()];
        assert_eq!((a.text().len(), a.is(b.text().as_bytes())), (64, false));
        assert!(a.is(a.text().as_bytes()));
        assert_eq!(format!("{a:?}"), "Token(..)");
    }

    #[test]
    fn only_the_own_host_and_origin_are_let_in() {
        let status = |port, all: &[(HeaderName, &str)]| {
            gate(port).let_in(&headers(all)).map_err(|(status, _)| status.as_u16())
        };
        for host in ["127.0.0.1:8080", "localhost:8080"] {
            assert_eq!(status(8080, &[(HOST, host)]), Ok(()));
            let origin = format!("http://{host}");
            assert_eq!(status(8080, &[(HOST, host), (ORIGIN, &origin)]), Ok(()));
        }
        assert_eq!(status(80, &[(HOST, "localhost")]), Ok(()));
        for host in [
            "127.0.0.1",
            "127.0.0.1:80",
            "127.0.0.1:8080.evil.example",
            "evil.example:8080",
            "localhost.evil.example:8080",
            "localhost:08080",
            "[::1]:8080",
            "",
        ] {
            assert_eq!(status(8080, &[(HOST, host)]), Err(421), "{host}");
        }
        assert_eq!(status(8080, &[]), Err(421));
        let own = (HOST, "localhost:8080");
        for origin in
            ["http://evil.example", "https://localhost:8080", "null", "http://localhost:8081", ""]
        {
            assert_eq!(status(8080, &[own.clone(), (ORIGIN, origin)]), Err(403), "{origin}");
        }
        let mut twice = headers(&[own]);
        twice.append(HOST, "evil.example".parse().unwrap());
        assert!(gate(8080).let_in(&twice).is_err());
    }

    #[test]
    fn only_the_token_opens() {
        let status = |value: Option<&str>| {
            let mut all = vec![(HOST, "localhost:8080")];
            all.extend(value.map(|value| (AUTHORIZATION, value)));
            gate(8080).let_in_with_token(&headers(&all)).map_err(|(status, _)| status.as_u16())
        };
        let token = "0123456789abcdef".repeat(4);
        assert_eq!(status(Some(&format!("Bearer {token}"))), Ok(()));
        let longer = format!("Bearer {token}0");
        let other = format!("Bearer {}1", &token[..63]);
        let upper = format!("Bearer {}", token.to_uppercase());
        let refused = [token.as_str(), "Bearer ", "", &longer, &other, &upper, &longer[..69]];
        for value in refused {
            assert_eq!(status(Some(value)), Err(401), "{value:?}");
        }
        assert_eq!(status(None), Err(401));
        // Not even with the token from another host.
        let all = headers(&[(HOST, "x:8080"), (AUTHORIZATION, &format!("Bearer {token}"))]);
        assert!(gate(8080).let_in_with_token(&all).is_err());
    }
}
