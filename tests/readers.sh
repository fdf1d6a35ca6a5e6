#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Foreign programs read what asmp wrote: readers.sh [PYTEST ARGUMENTS].
#
# Problem:  our own reader accepts what our own writer wrote, also where both are wrong.
# Approach: HdrHistogram's reader in Python, Prometheus's parser and its promtool read the same runs
#           (readers.py). promtool comes from Debian's package, unpacked and not installed. Where it
#           cannot be had its test is skipped and counted; with ASMP_CI it fails.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
cd "$here/.."
# shellcheck source=vm/lib.sh
. "$here/vm/lib.sh"
# shellcheck source=venv.sh
. "$here/venv.sh"
target=$(readlink -m "${CARGO_TARGET_DIR:-target}")
venv=$target/readers/venv
made_venv "$venv" "$here/readers.txt"

PROMTOOL=$(command -v promtool || true)
if [ -z "$PROMTOOL" ]; then
    PROMTOOL=$CACHE/readers/usr/bin/promtool
    if [ ! -x "$PROMTOOL" ]; then
        locked readers
        work=$(mktemp -d)
        trap 'rm -rf "$work"' EXIT
        unpacked() { (cd "$work" && apt-get -qq download prometheus && dpkg -x ./*.deb new) >&2; }
        # A fresh machine has no lists of packages.
        if unpacked || { as_root apt-get -qq update >&2 && unpacked; }; then
            rm -rf "$CACHE/readers"
            mv "$work/new" "$CACHE/readers"
        fi
    fi
fi
[ -x "$PROMTOOL" ] || PROMTOOL=''

cargo build --quiet -p asmp
export PROMTOOL ASMP=$target/debug/asmp PYTHONPYCACHEPREFIX=$target/readers/pycache
"$here/counted.sh" readers "$venv/bin/python" -m pytest --quiet "$here/readers.py" \
    -o "cache_dir=$target/readers/pytest" "$@"
