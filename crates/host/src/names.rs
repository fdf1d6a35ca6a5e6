// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of users and groups: passwd(5), group(5).

/// The number of this name in the text of /etc/passwd or /etc/group. The first line with the name
/// counts, as for getpwnam(3).
pub fn number_of(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_with_a_name_counts() {
        let text = "root:x:0:0::/:\n\nnonsense\nalice:x:1000:100::/:\nalice:x:0:0::/:\n";
        assert_eq!(number_of(text, "alice"), Some(1000));
        assert_eq!(number_of(text, "root"), Some(0));
        for name in ["nonsense", "", "x", "carol"] {
            assert_eq!(number_of(text, name), None, "{name}");
        }
    }
}
