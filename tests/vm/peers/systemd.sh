# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=bash disable=SC2317
# systemd.resource-control(5): the machine's three parts keep the other CPUs.
set_up() {
    for unit in system.slice user.slice init.scope; do
        systemctl set-property --runtime "$unit" AllowedCPUs=0-2
    done
}
start() {
    systemd-run --quiet --collect --slice=rt.slice -p AllowedCPUs=3 \
        -p CPUSchedulingPolicy=fifo -p CPUSchedulingPriority=80 /share/busy
}
undo() {
    for unit in system.slice user.slice init.scope; do
        systemctl set-property --runtime "$unit" AllowedCPUs=
    done
}
