# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=bash
# Shared by the benches that a plugin counts for; sourced, never run: where their marks are.

# marked SOURCE PROGRAM: builds it at addresses where no other program is.
marked() { gcc -O2 -static -no-pie -Wall -Wextra -Wl,-Ttext-segment=0x7000000 -o "$2" "$1"; }

plugin() { gcc -O2 -Wall -Wextra -shared -fPIC -o "$2" "$1"; }

# address_of SYMBOL: where it is, from what nm or /proc/kallsyms prints.
address_of() { awk -v name="$1" '$3 == name && !found++ { print "0x" $1 }'; }

# kernel_symbols KERNEL: those of its guests that boot with nokaslr, by address.
kernel_symbols() {
    "$(dirname "${BASH_SOURCE[0]}")/../lab.sh" --kernel "$1" --append nokaslr -- sort /proc/kallsyms
}

# waits SYMBOLS: where the kernel waits for a spin lock, as two options of a plugin.
waits() {
    awk 'spin && $1 > spin { print "spin=0x" spin ",spun=0x" $1; exit }
        $3 == "native_queued_spin_lock_slowpath" { spin = $1 }' "$1"
}
