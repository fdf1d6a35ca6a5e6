#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# setup.sh [ARCH]: makes a fresh Debian machine (bookworm or trixie) able to run the lab; with
# arm64 also its guests of that architecture.
#
# Problem:  the lab needs QEMU 10 or newer (7.2, bookworm's own, now and then
#           panics a guest early in boot) and a handful of common tools.
# Approach: ask for each tool and install only what is missing: the tools from
#           the machine's own sources, QEMU on bookworm from bookworm-backports
#           through a private sources list, so the apt setup stays as it is.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=lib.sh
. "$here/lib.sh"
architecture "kernel@${1:-}"
export DEBIAN_FRONTEND=noninteractive

# tool (or file) to look for, and the package that brings it
tools='
mmdebstrap    mmdebstrap
mke2fs        e2fsprogs
cpio          cpio
xz            xz-utils
depmod        kmod
flock         util-linux
gcc           gcc
c++           g++
make          make
shellcheck    shellcheck
chromium      chromium
ld            binutils
cmake         cmake
pkg-config    pkg-config
valgrind      valgrind
python3       python3
clang-19      clang-19
/usr/include/libelf.h  libelf-dev
/usr/include/zlib.h    zlib1g-dev
'

missing_packages() {
    local tool package
    while read -r tool package; do
        case $tool in
        '') ;;
        /*) [ -e "$tool" ] || echo "$package" ;;
        *) PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null || echo "$package" ;;
        esac
    done <<<"$tools"
    # What makes programs for the guest, where this machine's own compiler does not.
    # shellcheck disable=SC2086 # words
    [ -z "$CROSS_PACKAGES" ] || command -v "${CROSS}gcc" >/dev/null ||
        printf '%s\n' $CROSS_PACKAGES
}

install_tools() {
    local packages
    mapfile -t packages < <(missing_packages | sort -u)
    [ ${#packages[@]} -gt 0 ] || return 0
    say "installing ${packages[*]}"
    as_root apt-get -qq update
    as_root apt-get -qq install -y --no-install-recommends "${packages[@]}" >/dev/null
}

install_target() {
    [ -n "$TARGET" ] || return 0
    cd "$here"
    if ! rustup target list --installed | grep -qx "$TARGET"; then rustup target add "$TARGET"; fi
}

install_tools
install_qemu "$QEMU" "$QEMU_PACKAGE"
install_target
