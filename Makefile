# Each target sets up what it needs; .ci/run calls lint, test, python, loom, miri, tsan and asan.
TARGET = $(or $(CARGO_TARGET_DIR),target)
.PHONY: demo test unit vm python loom miri tsan asan lint lab containment bench bench-analysis bench-channels fuzz install-rt setup

setup:
	tests/vm/setup.sh

demo: setup
	tests/vm/demo.sh

test: unit vm

unit: setup
	cargo test --quiet

vm: setup
	tests/vm/test.sh $(GUESTS)

# The bindings for Python, crates/rt-py, as a wheel in a venv under the target directory.
python:
	tests/python.sh

# The lock-free code of crates/channel: every interleaving of small models; undefined behaviour; data races; out of bounds.
loom:
	LOOM_MAX_PREEMPTIONS=3 RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=$(TARGET)/loom cargo test --quiet --release -p asmp-channel --lib -- models::

miri tsan asan: setup
	tests/nightly.sh $@

# The figures of docs/measurements/channels.md, some minutes; no guest.
# The last program exits with 1 where a bar is missed, and says which.
bench-channels:
	CARGO_TARGET_DIR=$(TARGET)/bench cargo run --release --manifest-path bench/channels/Cargo.toml
	cargo run --release -p asmp-channel --example call_bench
	-cargo run --release -p asmp-rt --example calibrated_timer -- 4000 1 awake

# The figures of docs/measurements/containment.md: RUNS of each of five faults in one guest, about half an hour.
RUNS ?= 200
containment: setup
	tests/vm/containment.sh $(RUNS)

# libasmp_rt for C: libraries, headers, pkg-config, CMake find module, and asmp-rtf, which serves a FIFO as a file.
PREFIX ?= /usr/local
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
install-rt:
	cargo build --release -p asmp-rt-c
	install -Dm755 -t $(DESTDIR)$(PREFIX)/bin $(TARGET)/release/asmp-rtf
	install -Dm755 -t $(DESTDIR)$(PREFIX)/lib $(TARGET)/release/libasmp_rt.so
	install -Dm644 -t $(DESTDIR)$(PREFIX)/lib $(TARGET)/release/libasmp_rt.a
	install -Dm644 -t $(DESTDIR)$(PREFIX)/include crates/rt-c/include/asmp_rt.h
	cd crates/rt-c/include && find rtlinux -type f -exec install -Dm644 '{}' '$(DESTDIR)$(PREFIX)/include/{}' ';'
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/cmake crates/rt-c/cmake/FindAsmpRt.cmake
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	for name in asmp_rt asmp_rtlinux; do \
		sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' crates/rt-c/$$name.pc.in \
			>$(DESTDIR)$(PREFIX)/lib/pkgconfig/$$name.pc; \
	done

# The figures of docs/measurements/latency.md, about ten minutes.
bench: setup
	tests/vm/bench.sh

# The figures of docs/measurements/analysis.md, some minutes; no guest.
bench-analysis:
	cargo run --release -p asmp-analysis --example bench

# Arbitrary input for every public function of crates/analysis, overflow a panic; 10^7 take about 15 minutes of one core.
RUNS ?= 10000000
fuzz:
	cargo run --profile fuzz -p asmp-analysis --example bench -- fuzz 0 $(RUNS)

lint: setup
	cargo fmt --check
	cargo clippy --quiet --all-targets -- -D warnings
	shellcheck -x -P SCRIPTDIR tests/vm/*.sh tests/vm/guest/agent tests/vm/guest/bare tests/vm/guest/init tests/nightly.sh tests/python.sh .ci/run

# A guest for yourself: make lab KERNEL=sid-rt CPUS=4 CMD='uname -a'; no CMD gives a shell. All of CMD runs there.
KERNEL ?= sid-rt
CPUS ?= 4
lab: setup
	tests/vm/lab.sh --kernel $(KERNEL) --cpus $(CPUS) --append 'nohz_full=1-3 rcu_nocbs=1-3' $(if $(CMD),-- sh -c '$(subst ','\'',$(CMD))')
