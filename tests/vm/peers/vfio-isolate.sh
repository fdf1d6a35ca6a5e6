# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=bash disable=SC2317
# As its README does on cgroup v2; the task runs where virtual machines do.
set_up() {
    vfio-isolate -u /run/vfio-undo \
        cpuset-modify --cpus C0-2 /system.slice \
        cpuset-modify --cpus C0-2 /user.slice \
        irq-affinity mask C3
}
start() {
    systemd-run --quiet --collect --slice=machine.slice -p CPUAffinity=3 \
        -p CPUSchedulingPolicy=fifo -p CPUSchedulingPriority=80 /share/busy
}
undo() { vfio-isolate restore /run/vfio-undo; }
