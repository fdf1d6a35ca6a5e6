// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Common divisors and multiples, in 64 and in 128 bits.

/// Greatest common divisor; `gcd(0, n) = n`. At most 93 steps.
pub(crate) const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Least common multiple of two numbers above 0, where it fits.
pub(crate) fn lcm(a: u64, b: u64) -> Option<u64> {
    (a / gcd(a, b)).checked_mul(b)
}

/// As [`gcd`], in 128 bits.
pub(crate) const fn gcd_wide(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// As [`lcm`], in 128 bits; a 0 counts as 1.
pub(crate) fn lcm_wide(a: u128, b: u128) -> Option<u128> {
    (a / gcd_wide(a, b).max(1)).checked_mul(b)
}
