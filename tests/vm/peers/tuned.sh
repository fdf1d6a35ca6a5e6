# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=bash disable=SC2317
set_up() {
    sed -i 's/^isolated_cores=.*/isolated_cores=3/' /etc/tuned/realtime-variables.conf
    systemctl start tuned
    tuned-adm profile realtime
}
start() { taskset -c 3 chrt -f 80 /share/busy; }
undo() {
    tuned-adm off
    systemctl stop tuned
}
# The profile's daemon is killed with it.
also_kill() { systemctl kill --signal=KILL tuned; }
undo_after_kill() {
    systemctl start tuned
    undo
}
