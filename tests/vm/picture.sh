#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# A picture for README.md, docs/latency.svg: wake-up latency of one task under load, as an ordinary
# task and in a partition, measured in one boot of a guest whose clock counts instructions (16 ns
# each), so that no load of the host shows in it. `picture.sh [SAMPLES]`, or
# `picture.sh --of HTML` to take it out of a page that `asmp measure report -o` wrote.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
top=$(readlink -f "$here/../..")
picture=$top/docs/latency.svg

# The figure of both distributions, as wide pages have it, on white: a dark page would swallow its
# black text.
take() {
    python3 - "$1" >"$picture" <<'PYTHON'
import re, sys
page = open(sys.argv[1]).read()
figures = re.findall(r'<svg [^>]*class="wide".*?</svg>', page, re.S)
[figure] = [one for one in figures if ": percentiles</title>" in one]
print(figure.replace(">", '>\n<rect width="100%" height="100%" fill="#ffffff"/>', 1))
PYTHON
    echo "$picture: $(wc -c <"$picture") bytes"
}

if [ "${1:-}" = --of ]; then
    take "$2"
    exit
fi
cd "$top"
cargo build --release --quiet -p asmp
share=$(mktemp -d)
out=$(mktemp -d)
trap 'rm -rf "$share" "$out"' EXIT
cp "${CARGO_TARGET_DIR:-target}/release/asmp" "$share/"
cat >"$share/measure.sh" <<INSIDE
set -e
cd "\$(mktemp -d)"
# The guest's /tmp is in memory. The load writes to its disk.
/share/asmp measure latency --kinds normal,partition --load mixed --load-factor 8 \
    --load-dir /var/tmp --samples ${1:-1000} --period 5ms --source nanosleep --no-trace -o runs -q
/share/asmp measure report runs -o /out/report.html >/dev/null
INSIDE
"$here/lab.sh" --kernel "${KERNEL:-sid-rt}" --icount --append 'nohz_full=1-3 rcu_nocbs=1-3' \
    --share "$share" --out "$out" --timeout 2400 -- bash /share/measure.sh
take "$out/report.html"
