#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The tests of yartek, on its boards, too, and those of its proofs that take a minute; cppcheck.
# Installs what is missing for that: compilers for the boards, and QEMU as in the lab. Where it
# cannot, those tests say what they miss and are skipped.
# YARTEK_RAISES=1000000, YARTEK_JOBS=10000000: so many interrupts and jobs on each board, half an
# hour or so. YARTEK_DRIVE_S=280: all of the robot's path. Nightly has them.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=vm/lib.sh
. "$here/vm/lib.sh"
export DEBIAN_FRONTEND=noninteractive

# of_boards KEY: the texts of all boards, the first of a list.
of_boards() {
    sed -n "s/^$1 = \[*\"\([^\"]*\)\".*/\1/p" "$here"/../yartek/port/*/board.toml
}

missing_packages() {
    local compiler
    command -v cppcheck >/dev/null || echo cppcheck
    while read -r compiler; do
        command -v "$compiler" >/dev/null || echo "gcc-${compiler%-gcc}"
    done < <(of_boards compiler)
}

install_all() {
    local packages program package
    mapfile -t packages < <(missing_packages)
    if [ ${#packages[@]} -gt 0 ]; then
        say "installing ${packages[*]}"
        as_root apt-get -qq update
        as_root apt-get -qq install -y --no-install-recommends "${packages[@]}" >/dev/null
    fi
    while read -r program package; do
        install_qemu "$program" "$package"
    done < <(paste <(of_boards machine) <(of_boards machine_package))
}

# A process of its own: `set -e` does not hold in a function that is asked for its result.
if [ "${1:-}" = install ]; then
    install_all
    exit
fi
"$0" install || say "not all could be installed"
cd "$here/.."
if [ "${ASMP_TIER:-}" = nightly ]; then
    export YARTEK_RAISES="${YARTEK_RAISES:-1000000}" YARTEK_JOBS="${YARTEK_JOBS:-10000000}"
    export YARTEK_DRIVE_S="${YARTEK_DRIVE_S:-280}"
fi
status=0
# What it calls style needs more of a reader than it says.
if command -v cppcheck >/dev/null; then
    (cd yartek && cppcheck --quiet --std=c11 --platform=unix32 -DYK_MACHINE=0 \
        --enable=warning,performance,portability --error-exitcode=1 -Iinclude -Ikernel -Imodules \
        kernel modules port app) || status=1
else
    say 'skipped: cppcheck: not installed'
    [ -z "${ASMP_CI:-}" ] || status=1
fi
tests/counted.sh yartek cargo test --quiet -p asmp-yartek -- --show-output || status=$?
# Nightly has all proofs: yartek-proof.sh.
[ "${ASMP_TIER:-}" = nightly ] || tests/yartek-proof.sh explored || status=$?
exit $status
