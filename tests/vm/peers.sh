#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The figures of docs/measurements/peers.md: `peers.sh [ROW...]`, and the tables made of them.
#
# Problem:  asmp is worth what it does better than the other ways to the same end, done well.
# Approach: one guest with the real tools does each in turn under one load and counts with one
#           neutral counter (peers/in-guest.py). The raw figures are kept, the tables come of them.
# PROFILE=dev measures a build without optimisation.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
top=$(readlink -f "$here/../..")
# shellcheck source=lib.sh
. "$here/lib.sh"
vfio_isolate=0.5.2
profile=${PROFILE:-release}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
share=$work/share
mkdir "$share"
cd "$top"

# The tool itself, from PyPI, these very bytes; what it needs comes from Debian.
source=$CACHE/peers/vfio-isolate-$vfio_isolate.tar.gz
sha256=fbad511d8ae24b4423341dba2da1c49171382184c5980133a013d82ae8953a5a
if [ ! -e "$source" ]; then
    command -v pip3 >/dev/null || {
        say "installing python3-pip"
        as_root apt-get -qq install -y --no-install-recommends python3-pip >/dev/null
    }
    pip3 download --quiet --disable-pip-version-check --no-deps --no-binary :all: \
        --require-hashes --dest "$CACHE/peers" \
        --requirement <(echo "vfio-isolate==$vfio_isolate --hash=sha256:$sha256")
fi
echo "$sha256  $source" | sha256sum --quiet --check -
mkdir "$share/python"
tar -xzf "$source" -C "$share/python" --strip-components 1
echo "$vfio_isolate" >"$share/vfio-isolate.version"
printf '#!/bin/sh\nexec python3 -c "from vfio_isolate import run_cli; run_cli()" "$@"\n' \
    >"$share/vfio-isolate"
chmod +x "$share/vfio-isolate"

cargo build --quiet --profile "$profile" -p asmp
built=$profile
[ "$profile" != dev ] || built=debug
strip -o "$share/asmp" "${CARGO_TARGET_DIR:-target}/$built/asmp"
echo "$profile" >"$share/asmp.build"
runner=$(cargo test --no-run --message-format=json -p asmp --test guest 2>/dev/null |
    sed -n 's/.*"name":"guest".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
strip -o "$share/guest-tests" "$runner"
cp "$here"/peers/*.{sh,py} "$share"
cc -O2 -static -Wall -o "$share/busy" "$here/peers/busy.c"

rows=("$@")
[ ${#rows[@]} -gt 0 ] || rows=(nothing asmp script systemd vfio-isolate taskset tuned)
started=$SECONDS
ASMP_IMAGE_PACKAGES='python3 python3-click python3-psutil tuned' \
    "$here/lab.sh" --kernel "${KERNEL:-sid-rt}" --init systemd \
    --append "nohz_full=1-3 rcu_nocbs=1-3 ${APPEND:-}" --share "$share" --out "$work/out" \
    --timeout 3000 --verbose -- python3 /share/in-guest.py /out/peers.json "${rows[@]}"
# An emulated kernel that measures its clock on a busy host can take it to be several times slower
# than it is. All windows are short then.
host_s=$((SECONDS - started))
guest_s=$(sed -n 's/^ "up_s": \([0-9]*\).*/\1/p' "$work/out/peers.json")
[ $((guest_s * 4)) -le $((host_s * 5)) ] ||
    die "the guest's clock is wrong ($guest_s s in $host_s s): run again when the host is idle"
if [ $# -gt 0 ]; then
    mkdir -p "$CACHE/peers"
    cp "$work/out/peers.json" "$CACHE/peers/some-rows.json"
    say "figures of some rows: $CACHE/peers/some-rows.json; the documents are as they were"
    exit
fi
cp "$work/out/peers.json" docs/measurements/peers.json
python3 "$here/peers/tables.py"
