#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# image.sh KERNEL: prints the path of the root disk for that kernel's
# architecture, building it if need be.
#
# Problem:  a guest needs a complete Debian (systemd, udev, stress and
#           measuring tools) that every boot finds in the same state.
# Approach: one ext4 image of Debian trixie, built once per version of this
#           script. It contains nothing of the lab: lab.sh brings its own files
#           at each boot, and a boot writes to a throw-away overlay.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=lib.sh
. "$here/lib.sh"

architecture "$1"
suite=trixie
packages=(
    systemd systemd-sysv dbus udev kmod procps util-linux iproute2 iputils-ping
    stress-ng strace rt-tests rtla irqbalance systemd-container python3-minimal
)
# More of them, for a disk of its own: see peers.sh.
read -ra more <<<"${ASMP_IMAGE_PACKAGES:-}"
packages+=("${more[@]}")
# Free space in the guest; the file is sparse.
free_mb=512

image=$CACHE/image/root-$ARCH-$(
    { cat "$0" "$here/image-tree.sh"; printf '%s' "${more[*]}"; } | sha256sum | cut -c1-12
).ext4

if [ ! -e "$image" ]; then
    locked image
    if [ ! -e "$image" ]; then
        say "building the root image (once, about half a minute)"
        mkdir -p "${image%/*}"
        private_apt "$ARCH" "$suite"
        as_root "$here/image-tree.sh" "$ARCH" "$APT_DIR/sources.list" "$image.new" "$free_mb" \
            "${packages[*]}" >&2 ||
            die "the root image could not be built"
        mv "$image.new" "$image"
    fi
fi
printf '%s\n' "$image"
