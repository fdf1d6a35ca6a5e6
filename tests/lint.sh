#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# What `make lint` checks: formatting, clippy, rustdoc, the rules of the house, shell scripts. Needs
# cargo; shellcheck where it is there, and in CI (ASMP_CI) it must be.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

cargo fmt --all --check
# Workspaces of their own.
for manifest in bench/channels bench/yartek/rtic; do
    cargo fmt --manifest-path "$manifest/Cargo.toml" --check
done
# The lint on `rust-version` is among those of clippy that warn: see msrv.sh.
cargo clippy --workspace --all-targets --quiet -- -D warnings
RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --document-private-items --quiet
# Lines, files, words, arrows between crates.
cargo test --quiet -p asmp --test house --test docs --test arrows

skipped=0
if command -v shellcheck >/dev/null; then
    mapfile -t scripts < <(git ls-files '*.sh' tests/vm/guest/{agent,bare,init} .ci/run)
    shellcheck -x -P SCRIPTDIR "${scripts[@]}"
elif [ -n "${ASMP_CI:-}" ]; then
    echo "lint: no shellcheck" >&2
    exit 1
else
    echo "skipped: shell scripts: no shellcheck here"
    skipped=1
fi
echo "lint: 0 passed, 0 failed, $skipped skipped" >>"${ASMP_COUNTS:-/dev/null}"
