#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Checks licences, sources, bans and known defects of all crates that Cargo.lock names, by
# deny.toml.
#
# Problem:  cargo-deny takes minutes to build, and the list of known defects comes over the network.
# Approach: build it once, below the target directory, in the version named here. Only `make
#           nightly` and `make deny` do so.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
version=0.20.2
root=$(readlink -m "${CARGO_TARGET_DIR:-target}")/deny
bin=$root/bin/cargo-deny

if [ "$("$bin" --version 2>/dev/null)" != "cargo-deny $version" ]; then
    # Not with our flags, nor among our artefacts.
    CARGO_TARGET_DIR=$root/target \
        cargo install --quiet --locked --root "$root" --version "=$version" cargo-deny
    rm -rf "$root/target"
fi
"$bin" --workspace check --hide-inclusion-graph licenses bans sources
if ! said=$("$bin" --workspace check --hide-inclusion-graph advisories 2>&1); then
    # Not to be reached is not the same as a known defect.
    if [[ $said == *"failed to fetch advisory database"* ]] && [ -z "${ASMP_CI:-}" ]; then
        echo "skipped: deny: the list of known defects cannot be reached"
        exit 0
    fi
    echo "$said" >&2
    exit 1
fi
