#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The main job, shown in a guest so that it works anywhere and harms nothing: CPU 3 is shielded, a
# busy task runs there under load, and the counts without and with the partition stand one above the
# other.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
top=$(readlink -f "$here/../..")
if [ "${1:-}" != --inside ]; then
    cd "$top"
    cargo build --release --quiet -p asmp
    share=$(mktemp -d)
    trap 'rm -rf "$share"' EXIT
    cp "${CARGO_TARGET_DIR:-target}/release/asmp" "$here/demo.sh" "$share/"
    "$here/lab.sh" --kernel "${KERNEL:-sid-rt}" --append 'nohz_full=1-3 rcu_nocbs=1-3' \
        --share "$share" -- bash /share/demo.sh --inside
    exit
fi

asmp=/share/asmp
show() { printf '\n$ asmp %s\n' "$*"; "$asmp" "$@"; }
printf 'guest: kernel %s, %s CPUs, load: stress-ng on all of them\n' "$(uname -r)" "$(nproc)"
stress-ng --quiet --cpu 4 --hdd 1 --hdd-bytes 8M --temp-path /tmp --timer 1 --timer-freq 500 \
    --switch 1 --udp 1 &
load=$!
sleep 3
taskset -c 3 "$asmp" spin 600000 &
busy=$!
printf '\n# a busy loop on CPU 3, an ordinary task, not shielded\n'
show noise --cpus 3 -t 5s --table
kill "$busy"
show create demo --cpus 3
"$asmp" exec demo --policy fifo:80 -- "$asmp" spin 600000 &
busy=$!
sleep 4
printf '\n# the same loop on the same CPU under the same load, SCHED_FIFO 80, shielded\n'
show noise demo -t 10s --table
show status demo
# A busy real-time task must end before its partition: on system CPUs it would starve the kernel's
# own threads.
kill "$busy"
wait "$busy" 2>/dev/null || true
show destroy demo
kill "$load"
