#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# What a move costs (docs/measurements/sharing.md): `bench-moves.sh [COUNT [ROUNDS]]`. Instructions
# that all CPUs execute in the kernel for a system call, for a pair of sched_setaffinity(), and for
# an ejection off a real-time CPU and the return there; a plugin of QEMU counts them. COUNT of each
# kind, ROUNDS times. KERNEL: sid (default), sid-rt.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
top=$(readlink -f "$here/../..")
# shellcheck source=lib.sh
. "$here/lib.sh"
# shellcheck source=stretch/marks.sh
. "$here/stretch/marks.sh"

count=${1:-500} rounds=${2:-3} kernel=${KERNEL:-sid}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
share=$dir/share
mkdir "$share"
artis=$("$top/tests/artis.sh")
[ -n "$artis" ] || exit 0
strip -o "$share/asmp-artis" "$artis"
cp "$here/stretch/moves-in-guest.sh" "$share"
plugin "$here/stretch/moves.c" "$dir/moves.so"
marked "$here/stretch/caller.c" "$share/caller"

kernel_symbols "$kernel" >"$dir/symbols"
body=$(address_of __do_sys_getpid <"$dir/symbols")
call=$(nm "$share/caller" | address_of calls)
back=$(nm "$share/caller" | address_of came_back)
end=$(nm "$share/caller" | address_of ended)
marks=call=$call,body=$body,back=$back,end=$end,$(waits "$dir/symbols")

"$here/lab.sh" --kernel "$kernel" --tcg --share "$share" --timeout 7200 \
    --plugin "$dir/moves.so,$marks,rt=3,out=$dir/counts" \
    --append 'nokaslr nohz_full=1-3 rcu_nocbs=1-3 preempt=full' -- \
    /share/moves-in-guest.sh "$count" "$rounds" >"$dir/kinds"

# The last line of each kind is that of the whole.
echo "## Instructions in the kernel, $kernel; the last three are medians"
awk 'NR == FNR { kind[NR] = $1; next }
    FNR == 1 {
        printf form, "kind", "part", "n", "moved", "least", "median", "p99", "most", "CPU 3",
            "others", "BPF"
    }
    { printf form, kind[done + 1], $1, $2, $3, $4, $5, $6, $7, $8, $9, $10 }
    $1 == "whole" { done++ }' \
    form='%-18s %-6s %5s %5s %7s %7s %8s %8s %7s %7s %5s\n' "$dir/kinds" "$dir/counts" |
    tee "$dir/table"

# bar WHAT VALUE OPERATOR BOUND: a figure, and whether it is good.
missed=0
bar() {
    local verdict=ok
    if [ -z "$2" ] || ! awk "BEGIN { exit !($2 $3 $4) }"; then
        verdict=MISSED missed=1
    fi
    printf '%-60s %8s  %2s %-6s %s\n' "$1" "$2" "$3" "$4" "$verdict"
}
# Of the rounds: the median of the medians of a part, and the least count of moves.
median_of() {
    awk -v kind="$1" -v part="$2" '$1 == kind && $2 == part { print $6 }' "$dir/table" | sort -n |
        awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}
moved=$(awk '$1 == "guest-getpid" && $2 == "whole" { print $4 }' "$dir/table" | sort -n | head -n 1)
bar 'a call on CPU 0 with the scheduler, more than without' \
    $(($(median_of artis-0-getpid call) - $(median_of plain-0-getpid call))) == 0
bar 'calls of guests that were ejected, the least of a round' "$moved" '>=' $((count * 95 / 100))
bar 'instructions beside in the time of a move' "$(median_of guest-nothing whole)" '<=' 1000
exit $missed
