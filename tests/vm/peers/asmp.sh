# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=bash disable=SC2317
set_up() { asmp create rt --cpus 3; }
start() { asmp exec rt --policy fifo:80 -- /share/busy; }
undo() { asmp destroy rt; }
undo_after_kill() { asmp restore; }
