#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The latencies of docs/measurements/sharing.md: `bench-sharing.sh [SAMPLES [ROUNDS]]`. How late a
# real-time task wakes on a CPU that all share (fifo), that others share without and with the guard,
# and that is isolated. First in instructions of that CPU, which a plugin of QEMU counts: from the
# timer that wakes the task until it runs, without waits for another CPU (`spun`: in how many
# samples there were such). Then ROUNDS times in microseconds of the guest's clock.
# KERNEL: sid (default), sid-rt. LOADS: of idle, compute, kernel.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
top=$(readlink -f "$here/../..")
# shellcheck source=lib.sh
. "$here/lib.sh"
# shellcheck source=stretch/marks.sh
. "$here/stretch/marks.sh"

samples=${1:-20000} rounds=${2:-3} kernel=${KERNEL:-sid}
read -ra loads <<<"${LOADS:-idle compute kernel}"
boot='nohz_full=1-3 rcu_nocbs=1-3 preempt=full'
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
share=$dir/share
mkdir "$share"
cd "$top"
artis=$(tests/artis.sh)
[ -n "$artis" ] || exit 0
cargo build --release --quiet -p asmp
cp "${CARGO_TARGET_DIR:-target}/release/asmp" "$artis" "$here/bench-sharing-in-guest.sh" \
    "$here/stretch/in-guest.sh" "$share"
for program in calls load; do
    gcc -O2 -static -Wall -o "$share/$program" "$here/artis/$program.c"
done
plugin "$here/stretch/plugin.c" "$dir/plugin.so"
marked "$here/stretch/rt0.c" "$share/rt0"

kernel_symbols "$kernel" >"$dir/symbols"
from=$(address_of hrtimer_wakeup <"$dir/symbols")
to=$(nm "$share/rt0" | address_of woke)
sleeps=$(nm "$share/rt0" | address_of sleeps)
end=$(nm "$share/rt0" | address_of ended)
marks=from=$from,to=$to,not=$sleeps,end=$end,$(waits "$dir/symbols")

echo "## Instructions until the task runs, $kernel, load by load"
printf '%-22s %8s %8s %8s %8s %8s %8s %8s\n' kind-load n min p50 p99 p99.99 max spun
"$here/lab.sh" --kernel "$kernel" --tcg --share "$share" --timeout 7200 \
    --plugin "$dir/plugin.so,$marks,out=$dir/counts" \
    --append "nokaslr $boot" -- /share/in-guest.sh "$samples" 4000 "${loads[@]}" 2>"$dir/errors" |
    sed 's/ /-/' >"$dir/kinds" || { cat "$dir/errors" >&2; exit 1; }
paste -d ' ' "$dir/kinds" "$dir/counts" |
    awk '{ printf "%-22s %8d %8d %8d %8d %8d %8d %8d\n", $1, $2, $3, $4, $5, $6, $7, $8 }'

[ "$rounds" -gt 0 ] || exit 0
echo "## Microseconds, $kernel"
"$here/lab.sh" --kernel "$kernel" --append "$boot" --share "$share" --timeout 7200 -- \
    /share/bench-sharing-in-guest.sh 1000 "$rounds"
