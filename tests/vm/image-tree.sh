#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# image-tree.sh SOURCES IMAGE FREE_MB 'PACKAGES': image.sh's part that needs root.
#
# Problem:  the files of a root disk have owners and modes, device nodes and
#           capabilities, which only root can make.
# Approach: mmdebstrap makes the tree in a temporary directory (its apt and dpkg
#           run on that tree only), mke2fs copies it into a file.
set -euo pipefail
sources=$1 image=$2 free_mb=$3 packages=$4

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
tree=$work/tree

# The hooks are shell text that mmdebstrap runs with the tree as $1.
# shellcheck disable=SC2016
mmdebstrap --quiet --mode=root --variant=minbase --include="${packages// /,}" \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/info/*' \
    --aptopt='Acquire::Languages "none"' \
    --aptopt='APT::Install-Recommends "false"' \
    --customize-hook='chroot "$1" systemctl --quiet disable irqbalance.service' \
    --customize-hook='[ ! -d "$1/etc/tuned" ] || chroot "$1" systemctl -q disable tuned.service' \
    --customize-hook='chroot "$1" passwd -d root >/dev/null' \
    --customize-hook='mkdir -p "$1/share" "$1/out" "$1/usr/lib/modules"' \
    --customize-hook='echo lab >"$1/etc/hostname"' \
    --customize-hook='printf "127.0.0.1 localhost lab\n::1 localhost\n" >"$1/etc/hosts"' \
    --customize-hook=': >"$1/etc/fstab"' \
    '' "$tree" "$sources"
rm -rf "$tree"/var/lib/apt/lists/* "$tree"/var/cache/apt/*

size_mb=$(du -sm "$tree" | cut -f1)
mke2fs -q -t ext4 -O ^has_journal -m 0 -L lab-root -d "$tree" "$image" \
    "$((size_mb * 11 / 10 + free_mb))m" >/dev/null 2>&1
chmod 644 "$image"
