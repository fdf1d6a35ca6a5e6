# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=bash disable=SC2317
# The task is bound to the CPU that is counted, and nothing else is done.
set_up() { :; }
start() { taskset -c 3 /share/busy; }
undo() { :; }
