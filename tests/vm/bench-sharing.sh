#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The latencies of docs/measurements/sharing.md: `bench-sharing.sh [SAMPLES [ROUNDS]]`, in a guest
# whose clock counts instructions and in one on the real clock. KERNEL: sid (default), sid-rt.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
top=$(readlink -f "$here/../..")
# shellcheck source=lib.sh
. "$here/lib.sh"

share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT
cd "$top"
artis=$(tests/artis.sh)
[ -n "$artis" ] || exit 0
cargo build --release --quiet -p asmp
cp "${CARGO_TARGET_DIR:-target}/release/asmp" "$artis" "$here/bench-sharing-in-guest.sh" "$share"
for clock in --icount --tcg; do
    echo "## ${clock#--}"
    "$here/lab.sh" --kernel "${KERNEL:-sid}" $clock --append 'nohz_full=1-3 rcu_nocbs=1-3' \
        --share "$share" --timeout 3600 -- /share/bench-sharing-in-guest.sh "${1:-1000}" "${2:-3}"
done
