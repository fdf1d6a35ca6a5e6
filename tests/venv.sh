# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=bash
# made_venv DIRECTORY LIST: a Python environment with the packages of LIST, made anew where the list
# has changed. Sourced after vm/lib.sh, never run.
#
# Problem:  a fresh machine has no maturin, pytest or mypy, bookworm's python3
#           often not even venv, and none of that belongs into the system.
# Approach: python3-venv from the machine's own sources if it is missing, the
#           rest, pinned, below the target directory.

python_fits() {
    "$1" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

made_venv() {
    local python=python3
    if ! python_fits "$python"; then
        say "installing python3 python3-venv"
        as_root apt-get -qq update
        DEBIAN_FRONTEND=noninteractive as_root apt-get -qq install -y --no-install-recommends \
            python3 python3-venv >/dev/null
        python=/usr/bin/python3
        python_fits "$python" || die "Python 3.11 or newer with venv is needed," \
            "this machine's sources give $("$python" --version)"
    fi
    # Also where making it was broken off.
    if ! cmp -s "$2" "$1/made-from"; then
        rm -rf "$1"
        "$python" -m venv "$1"
        "$1/bin/pip" install --quiet --disable-pip-version-check --requirement "$2"
        cp "$2" "$1/made-from"
    fi
}
