#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# in-guest.sh: loads the scheduler for CPUs 2-3 in a guest, with guests of several kinds, and prints
# what it counted. /share holds asmp-artis, and load (from load.c, static). From the repository:
#   tests/vm/lab.sh --kernel sid --append 'nohz_full=1-3 rcu_nocbs=1-3 preempt=full' --share DIR \
#       -- sh /share/in-guest.sh
artis=/share/asmp-artis load=/share/load
mount -t bpf bpf /sys/fs/bpf 2>/dev/null
for cpu in 2 3; do
    for server in fair ext; do
        echo 0 >/sys/kernel/debug/sched/${server}_server/cpu$cpu/runtime
    done
done

# together KIND...: one process of each, at the same time.
together() {
    echo "== $*"
    for kind; do
        $load "$kind" 5 100000 &
    done
    wait
}

together spin spin spin spin
together calls
$artis load 2-3 --observe || exit
together spin spin spin spin
together calls
together spin spin calls faults forks mixed
$artis stats
dmesg | grep -iE 'sched_ext|BUG|WARN|stall'
$artis unload
cat /sys/kernel/sched_ext/state
