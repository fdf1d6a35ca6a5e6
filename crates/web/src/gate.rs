// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is let in. Pure, but for the token's making.
//!
//! - The Host must be this server's, whose name is made at each start: a page of another site can
//!   have its own name resolve to 127.0.0.1 (DNS rebinding).
//! - An Origin, where there is one, must be this server's: a page of another site may ask, and not
//!   read.
//! - All but the page's own files needs the token, as `Authorization: Bearer`. No other page can
//!   send that, and no other user has it.

use axum::http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use std::fmt;
use std::io;

/// What lets a browser in: 32 random bytes, in hexadecimal.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// From the kernel's random numbers. Errors: the kernel has none.
    pub fn new() -> io::Result<Self> {
        Ok(Self(random::<32>()?))
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

/// So many random bytes of the kernel, in hexadecimal. Errors: it has none.
pub(crate) fn random<const BYTES: usize>() -> io::Result<String> {
    let mut bytes = [0; BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut bytes[filled..], flags)?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// What a request must have.
#[derive(Debug, Clone)]
pub struct Gate {
    /// Name and port.
    pub authority: String,
    pub token: Token,
}

/// Why a request is refused.
pub type Closed = (StatusCode, &'static str);

impl Gate {
    /// Lets a request for the page's own files in. Errors: of a wrong Host or Origin.
    pub fn let_in(&self, headers: &HeaderMap) -> Result<(), Closed> {
        if only(headers, &HOST) != Some(&self.authority) {
            let words = "another host or port than asmp web printed: use that address; with ssh \
                         -L, use the same port on both sides";
            return Err((StatusCode::MISDIRECTED_REQUEST, words));
        }
        let is_own = |origin: &str| origin.strip_prefix("http://") == Some(&self.authority);
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

    const OWN: &str = "a1.localhost:8080";

    fn gate() -> Gate {
        Gate { authority: OWN.to_owned(), token: Token("0123456789abcdef".repeat(4)) }
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
        let status = |all: &[(HeaderName, &str)]| {
            gate().let_in(&headers(all)).map_err(|(status, _)| status.as_u16())
        };
        assert_eq!(status(&[(HOST, OWN)]), Ok(()));
        let origin = format!("http://{OWN}");
        assert_eq!(status(&[(HOST, OWN), (ORIGIN, &origin)]), Ok(()));
        for host in [
            "127.0.0.1:8080",
            "localhost:8080",
            "a2.localhost:8080",
            "a1.localhost",
            "a1.localhost:80",
            "a1.localhost:08080",
            "a1.localhost:8080.evil.example",
            "evil.example:8080",
            "[::1]:8080",
            "",
        ] {
            assert_eq!(status(&[(HOST, host)]), Err(421), "{host}");
        }
        assert_eq!(status(&[]), Err(421));
        let own = (HOST, OWN);
        for origin in [
            "http://evil.example",
            "https://a1.localhost:8080",
            "null",
            "http://localhost:8080",
            "",
        ] {
            assert_eq!(status(&[own.clone(), (ORIGIN, origin)]), Err(403), "{origin}");
        }
        let mut twice = headers(&[own]);
        twice.append(HOST, "evil.example".parse().unwrap());
        assert!(gate().let_in(&twice).is_err());
    }

    #[test]
    fn only_the_token_opens() {
        let status = |value: Option<&str>| {
            let mut all = vec![(HOST, OWN)];
            all.extend(value.map(|value| (AUTHORIZATION, value)));
            gate().let_in_with_token(&headers(&all)).map_err(|(status, _)| status.as_u16())
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
        assert!(gate().let_in_with_token(&all).is_err());
    }
}
