#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Builds, installs and tests the Python bindings: tests/python.sh [PYTEST ARGUMENTS].
#
# What is tested is the wheel as it would be installed, not the source tree.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
cd "$here/.."
# shellcheck source=vm/lib.sh
. "$here/vm/lib.sh"
target=$(readlink -m "${CARGO_TARGET_DIR:-target}")
export CARGO_TARGET_DIR=$target PYTHONPYCACHEPREFIX=$target/python/pycache
venv=$target/python/venv

# shellcheck source=venv.sh
. "$here/venv.sh"
made_venv "$venv" "$here/python.txt"

rm -rf "$target/python/wheel"
if ! "$venv/bin/maturin" build --quiet --manifest-path crates/rt-py/Cargo.toml \
    --compatibility linux --interpreter "$venv/bin/python" --out "$target/python/wheel" \
    >"$target/python/build.log" 2>&1; then
    cat "$target/python/build.log" >&2
    die "the bindings could not be built"
fi
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-index \
    --force-reinstall "$target"/python/wheel/*.whl
cargo build --quiet -p asmp-rt --example sound_card
# A program in C, to which scripts speak. Static: it runs as a user who may not see this directory.
cargo build --quiet -p asmp-rt-c
cc -O1 -pthread -Icrates/rt-c/include crates/rt-c/tests/capable.c "$target/debug/libasmp_rt.a" \
    -lm -ldl -o "$target/python/capable"

cd crates/rt-py
"$venv/bin/mypy" --no-error-summary --cache-dir "$target/python/mypy" \
    python/asmp_rt ../../examples/rt/python tests
"$venv/bin/python" -m mypy.stubtest --mypy-config-file pyproject.toml --ignore-unused-allowlist \
    --allowlist tests/stubtest.allow asmp_rt._native
# Not from the source tree: that has no native module.
export SOUND_CARD=$target/debug/examples/sound_card CAPABLE=$target/python/capable
"$here/counted.sh" python "$venv/bin/python" -P -m pytest --quiet \
    -o "cache_dir=$target/python/pytest" "$@"
