#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# cbmc.sh PROGRAM ARGUMENT...: runs a PROGRAM of the package cbmc, a bounded model checker for C:
# cbmc, goto-cc, goto-instrument.
#
# Problem:  Debian has it from trixie on, and its library of C is newer than bookworm's.
# Approach: where the machine has none, its package and the libraries that it needs are unpacked
#           into the cache, and run by their own loader. Nothing is installed.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=vm/lib.sh
. "$here/vm/lib.sh"
program=$1
shift
! command -v "$program" >/dev/null || exec "$program" "$@"

root=$CACHE/cbmc
if [ ! -e "$root" ]; then
    locked cbmc
fi
if [ ! -e "$root" ]; then
    say 'fetching cbmc'
    private_apt "$(own_architecture)" trixie
    rm -rf "$root.new"
    mkdir -p "$root.new/packages"
    (
        cd "$root.new/packages"
        apt-get "${APT[@]}" download cbmc libc6 libstdc++6 libgcc-s1 minisat >&2
        for package in *.deb; do dpkg-deb -x "$package" ..; done
    )
    rm -r "$root.new/packages"
    mv "$root.new" "$root"
fi

libraries=$(echo "$root"/usr/lib/*-linux-gnu*)
loader=$(echo "$libraries"/ld-linux*.so.*)
# The name decides what goto-cc does.
exec "$loader" --argv0 "$program" --library-path "$libraries:$root/usr/lib" \
    "$root/usr/bin/$program" "$@"
