#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# image-tree.sh ARCH SOURCES IMAGE FREE_MB 'PACKAGES': image.sh's part that needs root.
#
# Problem:  the files of a root disk have owners and modes, device nodes and
#           capabilities, which only root can make. Another architecture's
#           package scripts do not run on this machine.
# Approach: mmdebstrap makes the tree in a temporary directory (its apt and dpkg
#           run on that tree only), mke2fs copies it into a file. Packages of
#           another architecture are unpacked and not configured: what the lab's
#           programs need of that, `configure_by_hand` does. No emulator runs here.
set -euo pipefail
arch=$1 sources=$2 image=$3 free_mb=$4 packages=$5

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
tree=$work/tree

# debian VARIANT 'PACKAGES' [OPTION...]
debian() {
    local variant=$1 packages=$2
    shift 2
    mmdebstrap --quiet --mode=root --variant="$variant" --include="${packages// /,}" \
        --architectures="$arch" \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/info/*' \
        --aptopt='Acquire::Languages "none"' \
        --aptopt='APT::Install-Recommends "false"' \
        "$@" '' "$tree" "$sources"
}

# What the scripts of base-passwd, libc-bin and mawk do; systemd makes its users when it boots.
configure_by_hand() {
    local file
    for file in passwd group; do
        sed 's/^root:\*:/root::/' "$tree/usr/share/base-passwd/$file.master" >"$tree/etc/$file"
    done
    cp "$tree/usr/share/libc-bin/nsswitch.conf" "$tree/etc/nsswitch.conf"
    ln -sf mawk "$tree/usr/bin/awk"
    echo 'disable irqbalance.service' >"$tree/usr/lib/systemd/system-preset/00-lab.preset"
}

if [ "$arch" = "$(dpkg --print-architecture)" ]; then
    # The hooks are shell text that mmdebstrap runs with the tree as $1.
    # shellcheck disable=SC2016
    debian minbase "$packages" \
        --customize-hook='chroot "$1" systemctl --quiet disable irqbalance.service' \
        --customize-hook='! [ -d "$1/etc/tuned" ] || chroot "$1" systemctl disable tuned' \
        --customize-hook='chroot "$1" passwd -d root >/dev/null'
else
    debian extract "$packages" --include="?essential"
    configure_by_hand
fi
mkdir -p "$tree"/{share,out,usr/lib/modules}
echo lab >"$tree/etc/hostname"
printf '127.0.0.1 localhost lab\n::1 localhost\n' >"$tree/etc/hosts"
: >"$tree/etc/fstab"
rm -rf "$tree"/var/lib/apt/lists/* "$tree"/var/cache/apt/*

size_mb=$(du -sm "$tree" | cut -f1)
mke2fs -q -t ext4 -O ^has_journal -m 0 -L lab-root -d "$tree" "$image" \
    "$((size_mb * 11 / 10 + free_mb))m" >/dev/null 2>&1
chmod 644 "$image"
