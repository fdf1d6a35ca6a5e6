#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# artis.sh [KERNEL...]: builds the scheduler of shared partitions, crates/artis, and checks it in a
# guest of each KERNEL (sid and sid-rt). Prints a line for each figure with its bar; exits with 1 if
# one is missed. ARTIS_SECONDS: how long the guests of each part run (20). ARTIS_PARTS: which parts.
# ARTIS_POLICY_CPUS: how many CPUs the guest has in which throughput is compared (2).
#
# Problem:  the crate needs clang, which asmp does without.
# Approach: tests/artis.sh builds it, or says why it is skipped.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
top=$(readlink -f "$here/../..")
# shellcheck source=lib.sh
. "$here/lib.sh"

kernels=("$@")
[ $# -gt 0 ] || kernels=(sid sid-rt)
artis=$("$top/tests/artis.sh" test)
[ -n "$artis" ] || exit 0

share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT
strip -o "$share/asmp-artis" "$artis"
for program in calls load gates; do
    gcc -O2 -static -pthread -Wall -o "$share/$program" "$here/artis/$program.c"
done
cp "$here/artis/in-guest.sh" "$share"

# in_guest KERNEL CPUS PART...
in_guest() {
    local kernel=$1 cpus=$2
    shift 2
    echo "=== $kernel, $cpus CPUs: $* ==="
    "$here/lab.sh" --kernel "$kernel" --cpus "$cpus" --share "$share" --timeout 3000 \
        --append "nohz_full=1-$((cpus - 1)) rcu_nocbs=1-$((cpus - 1)) preempt=full" -- \
        bash /share/in-guest.sh "${ARTIS_SECONDS:-20}" "$@" || failed=1
}

failed=0
all='interface kills changes turns bound stalls hotplug strays renices returns crowd gates'
all+=' guarantee'
read -ra parts <<<"${ARTIS_PARTS:-$all}"
for kernel in "${kernels[@]}"; do
    in_guest "$kernel" 4 "${parts[@]}"
    # An emulated CPU is a thread: throughput of more than there are cores says nothing.
    in_guest "$kernel" "${ARTIS_POLICY_CPUS:-2}" policy
done
exit $failed
