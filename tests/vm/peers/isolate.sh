#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# isolate.sh start CPU OTHERS OTHERS_AS_HEX | stop: what an engineer writes by hand for cgroup v2.
# It follows the kernel's admin-guide: cgroup-v2, cpu-isolation, kernel-per-CPU-kthreads.
set -u
group=/sys/fs/cgroup/isolated saved=/run/isolate.saved
queues=/sys/devices/virtual/workqueue/cpumask
case $1 in
start)
    cpu=$2 others=$3 hex=$4
    servers=(/sys/kernel/debug/sched/*_server/"cpu$cpu"/runtime)
    for file in "$queues" "${servers[@]}" /proc/irq/[0-9]*/smp_affinity_list; do
        echo "$file $(cat "$file")"
    done >"$saved"
    echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
    mkdir "$group"
    echo "$cpu" >"$group/cpuset.cpus"
    echo isolated >"$group/cpuset.cpus.partition"
    [ "$(cat "$group/cpuset.cpus.partition")" = isolated ] || exit 1
    echo "$hex" >"$queues"
    # A line that the kernel manages refuses.
    for irq in /proc/irq/[0-9]*/smp_affinity_list; do
        { echo "$others" >"$irq"; } 2>/dev/null
    done
    for server in "${servers[@]}"; do
        echo 0 >"$server"
    done
    ;;
stop)
    while read -r file text; do
        { echo "$text" >"$file"; } 2>/dev/null
    done <"$saved"
    rmdir "$group" && rm "$saved"
    ;;
esac
