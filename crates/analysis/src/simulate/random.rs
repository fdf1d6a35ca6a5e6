// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers that a seed decides, on every machine and for ever: SplitMix64 (Steele, Lea, Flood,
//! OOPSLA 2014). A crate's generator may change with its version; the bytes of a run may not.

/// Not for secrets.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[inline]
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to `most`, both possible; even to within 2^-64.
    #[inline]
    pub const fn up_to(&mut self, most: u64) -> u64 {
        ((self.next() as u128 * (most as u128 + 1)) >> 64) as u64
    }

    /// True `parts` times in a million.
    #[inline]
    pub const fn in_a_million(&mut self, parts: u32) -> bool {
        self.up_to(999_999) < parts as u64
    }

    /// In [0, 1).
    pub const fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        let first = [random.next(), random.next(), random.next()];
        assert_eq!(
            first,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
        assert!((0..1000).all(|_| random.up_to(3) <= 3));
        assert_eq!(random.up_to(0), 0);
    }
}
