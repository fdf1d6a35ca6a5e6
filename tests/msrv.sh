#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Builds all crates with the oldest Rust that Cargo.toml promises (`rust-version`).
#
# Problem:  clippy's `incompatible_msrv`, which `make lint` has on, knows the standard library's
#           functions, but not every change of the language, nor what our dependencies need.
# Approach: `cargo check` with that very toolchain, in a target directory of its own; rustup
#           installs it.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
target=${CARGO_TARGET_DIR:-target}

if ! cargo "+$version" --version >/dev/null 2>&1 &&
    ! said=$(rustup toolchain install "$version" --profile minimal 2>&1); then
    if [ -n "${ASMP_CI:-}" ]; then
        echo "msrv: Rust $version cannot be installed: ${said##*$'\n'}" >&2
        exit 1
    fi
    echo "skipped: msrv: Rust $version cannot be installed: ${said##*$'\n'}"
    exit 0
fi
CARGO_TARGET_DIR=$target/msrv cargo "+$version" check --workspace --locked --quiet
