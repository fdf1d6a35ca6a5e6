# SPDX-License-Identifier: Apache-2.0 OR MIT
# Tiers: check (no root, no guest), test (what CI runs), nightly (everything). CONTRIBUTING.md has
# them in a table. Targets that boot a guest call `setup`, which installs what is missing on Debian;
# lint, unit, msrv, loom need cargo.
TARGET = $(or $(CARGO_TARGET_DIR),target)
.PHONY: demo check test nightly lint unit vm msrv deny python loom miri tsan asan agreement fuzz
.PHONY: artis readers lab containment hands random bench bench-analysis bench-channels
.PHONY: bench-measure bench-moves bench-peers bench-responses bench-sharing install install-rt
.PHONY: rtlinux setup soak fuzz-files bench-others yartek yartek-asan yartek-demo yartek-proof
.PHONY: bench-yartek

setup:
	tests/vm/setup.sh $(ARCH)

demo: setup
	tests/vm/demo.sh

check: lint unit

test: check yartek vm

# Every guest with every kill, every sanitizer in full, agreement, random sequences, benches with
# their gates, and a tenth of fuzz, another one each night, and of containment.
nightly:
	ASMP_TIER=nightly tests/parts.sh setup lint msrv deny yartek yartek-proof yartek-asan unit vm \
		python readers loom miri tsan asan agreement random fuzz containment bench-channels \
		bench-responses
	tests/sources.sh --record python loom miri tsan asan

# Nightly takes a tenth of what takes hours; ALL=1 takes all.
NIGHT := $(shell expr $$(date +%s) / 86400 % 10)
is_slice = $(and $(filter nightly,$(ASMP_TIER)),$(if $(ALL),,slice))

# A tool that is missing is a line `skipped: …` on a developer's machine and a failure in CI
# (ASMP_CI=1). In CI and nightly the part `yartek` has that crate's tests.
unit:
	tests/counted.sh unit cargo test --workspace $(if $(ASMP_COUNTS),--exclude asmp-yartek) \
		--quiet --no-fail-fast -- --show-output

# In guests of the lab; GUESTS='sid-rt:bare trixie-rt:bare' chooses, FILTER='word' too.
vm: setup
	tests/vm/test.sh $(GUESTS) $(if $(FILTER),-- $(FILTER))

lint:
	tests/lint.sh

# The oldest Rust that Cargo.toml names; rustup installs it if it is missing.
msrv:
	tests/msrv.sh

# Licences, sources and known defects of the crates we use; the latter needs the network.
deny:
	tests/deny.sh

# The kernel for microcontrollers, also on its boards in QEMU: some minutes. Installs compilers and
# QEMU where they are missing. Before `unit` in CI: boards whose tools are missing fail there.
yartek:
	tests/yartek.sh

# The robot of the case study: its schedule beside the simulator's, and its map after half a minute.
yartek-demo: ASMP = cargo run --quiet -p asmp -- yartek
yartek-demo:
	tests/yartek.sh install
	$(ASMP) compare yartek/app/robot --for 12s
	$(ASMP) run yartek/app/robot --for 31s --gantt $(TARGET)/robot.svg >$(TARGET)/robot.txt
	@tail -n 1 $(TARGET)/robot.txt
	$(ASMP) map $(TARGET)/robot.txt -o $(TARGET)/map.svg

# The contracts of yartek's kernel, and whether each fault of a list breaks its proof. No QEMU;
# fetches CBMC where it is missing.
yartek-proof:
	tests/yartek-proof.sh

# yartek beside FreeRTOS and RTIC on a board in QEMU: a minute after the build. FREERTOS=DIR has the
# sources of FreeRTOS-Kernel. Exits with 1 where a goal is missed, and says which.
bench-yartek:
	FREERTOS='$(FREERTOS)' tests/bench-yartek.sh

# The bindings for Python, crates/rt-py, as a wheel in a venv under the target directory.
python:
	tests/python.sh

# What `asmp measure` exports and keeps, read by programs of others.
readers:
	tests/readers.sh

# The lock-free code of channels: every interleaving of small models; undefined behaviour; data
# races; out of bounds.
loom:
	LOOM_MAX_PREEMPTIONS=3 RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=$(TARGET)/loom \
		tests/counted.sh loom cargo test --quiet --release -p asmp-channel --lib -- --show-output models::

miri tsan asan yartek-asan:
	tests/nightly.sh $@

# The figures of docs/measurements/channels.md, some minutes; no guest.
# The last program exits with 1 where a limit is missed, and says which; nightly that is a failure.
bench-channels:
	CARGO_TARGET_DIR=$(TARGET)/bench cargo run --release --manifest-path bench/channels/Cargo.toml
	cargo run --release -p asmp-channel --example call_bench
	$(if $(filter nightly,$(ASMP_TIER)),,-)cargo run --release -p asmp-rt \
		--example calibrated_timer -- 4000 1 awake

# The scheduler of shared partitions, crates/artis, in guests: its guarantee, its policy, changes at
# run time. KERNELS='sid sid-rt' chooses; its tasks run for SECONDS in each part.
artis: SECONDS ?= 20
artis: setup
	ARTIS_SECONDS=$(SECONDS) tests/vm/artis.sh $(KERNELS)

# How late a real-time task wakes on a CPU that others share, with and without the guard, and alone:
# in guests, an hour or so.
bench-sharing: setup
	tests/vm/bench-sharing.sh $(SAMPLES) $(ROUNDS)

# What an ejection off a shared CPU and the return there cost, in instructions, beside a system call
# alone and a pair of sched_setaffinity(): in a guest, minutes. KERNEL=sid-rt chooses. Exits with 1
# where a call on a system CPU costs more with the scheduler than without.
bench-moves: setup
	tests/vm/bench-moves.sh $(COUNT) $(ROUNDS)

# What tasks that compute or call often, hackbench, fio and a compiler get beside a shared and an
# isolated partition: ROUNDS of each (3) in one guest, a quarter of an hour. CPUS=2 chooses.
bench-others: setup
	CPUS=$(CPUS) tests/vm/bench-others.sh $(ROUNDS)

# The figures of docs/measurements/containment.md: RUNS of each of five faults in one guest, about
# half an hour.
containment: RUNS ?= $(if $(is_slice),20,200)
containment: setup
	tests/vm/containment.sh $(RUNS)

# Other people's hands at work beside our commands, MINUTES in a guest of each series with
# PREEMPT_RT.
hands: MINUTES ?= 60
hands: GUESTS ?= sid-rt:bare trixie-rt:bare backports-rt:bare
hands: setup
	ASMP_HANDS_MINUTES=$(MINUTES) ASMP_GUEST_SECONDS=$$(($(MINUTES) * 60 + 1200)) \
		tests/vm/test.sh $(GUESTS) -- 'hands at work'

# asmpd under storms of breaks of four kinds and stress-ng, MINUTES in a guest: it loses nothing,
# and does not grow.
soak: MINUTES ?= 30
soak: setup
	ASMP_TIER=nightly ASMP_SOAK_MINUTES=$(MINUTES) ASMP_GUEST_SECONDS=$$(($(MINUTES) * 60 + 1200)) \
		tests/vm/test.sh sid-rt:bare -- soak:

# WRITES meaningless writes to the files of asmpd, in a guest: each must be refused.
fuzz-files: WRITES ?= 1000000
fuzz-files: setup
	ASMP_FILE_WRITES=$(WRITES) tests/vm/test.sh sid-rt:bare -- 'files: bytes'

# asmp, asmpd, and their services for systemd, as `cargo build --release` has made them: root often
# has no cargo. asmp-artis, which shared partitions need, if tests/artis.sh has built it.
UNITS = $(DESTDIR)$(PREFIX)/lib/systemd/system
install:
	@test -x $(TARGET)/release/asmpd || { echo 'first: cargo build --release' >&2; exit 1; }
	install -Dm755 -t $(DESTDIR)$(PREFIX)/bin $(TARGET)/release/asmp $(TARGET)/release/asmpd
	if test -x $(TARGET)/artis/release/asmp-artis; then \
		install -m755 -t $(DESTDIR)$(PREFIX)/bin $(TARGET)/artis/release/asmp-artis; \
	else echo 'without asmp-artis, which --share needs: tests/artis.sh builds it'; fi
	install -d $(UNITS)
	for unit in cli/asmp daemon/asmpd; do \
		sed 's|/usr/local/bin|$(PREFIX)/bin|' crates/$$unit.service \
			>$(UNITS)/$${unit#*/}.service || exit; done
	install -d $(DESTDIR)/etc/asmp
	$(TARGET)/release/asmp man --all $(DESTDIR)$(PREFIX)/share/man

# libasmp_rt for C: libraries, headers, pkg-config, a package for CMake, and asmp-rtf, which serves
# a FIFO as a file. LIBDIR is where this system has its libraries. Before 1.0 each minor version has
# an ABI, and so a soname, of its own.
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
SONAME = libasmp_rt.so.$(shell echo $(VERSION) | cut -d. -f1,2)
INCLUDE = $(shell realpath -m --relative-to=$(LIBDIR) $(PREFIX)/include)
# Run by the shell of the recipe, once the library is there. An ELF file has class 1 (32 bits) or 2.
POINTER = expr 4 \* $$(od -An -tu1 -j4 -N1 $(TARGET)/release/libasmp_rt.so)
FILLED = sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|; s|@INCLUDE@|$(INCLUDE)|; \
	s|@POINTER@|'"$$($(POINTER))"'|; \
	s|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|'
install-rt:
	@if command -v cargo >/dev/null; then cargo build --release -p asmp-rt-c; \
	elif ! test -f $(TARGET)/release/libasmp_rt.so; then \
		echo 'first, as a user who has cargo: cargo build --release -p asmp-rt-c' >&2; exit 1; fi
	install -Dm755 -t $(DESTDIR)$(PREFIX)/bin $(TARGET)/release/asmp-rtf
	install -Dm755 $(TARGET)/release/libasmp_rt.so $(DESTDIR)$(LIBDIR)/libasmp_rt.so.$(VERSION)
	ln -sf libasmp_rt.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libasmp_rt.so
	install -Dm644 -t $(DESTDIR)$(LIBDIR) $(TARGET)/release/libasmp_rt.a
	strip --strip-debug $(DESTDIR)$(LIBDIR)/libasmp_rt.a
	install -Dm644 -t $(DESTDIR)$(PREFIX)/include crates/rt-c/include/asmp_rt.h
	cd crates/rt-c/include && find rtlinux -type f \
		-exec install -Dm644 '{}' '$(DESTDIR)$(PREFIX)/include/{}' ';'
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(LIBDIR)/cmake/AsmpRt
	for name in asmp_rt.pc asmp_rtlinux.pc; do \
		$(FILLED) crates/rt-c/$$name.in >$(DESTDIR)$(LIBDIR)/pkgconfig/$$name; \
	done
	for name in AsmpRtConfig.cmake AsmpRtConfigVersion.cmake; do \
		$(FILLED) crates/rt-c/cmake/$$name.in >$(DESTDIR)$(LIBDIR)/cmake/AsmpRt/$$name; \
	done

# RTLinux programs of yours: SOURCES is their directory, with a list (docs/rtlinux.md).
rtlinux:
	tests/rtlinux.sh $(SOURCES)

# The figures of docs/measurements/latency.md, about ten minutes.
bench: setup
	tests/vm/bench.sh

# The figures of docs/measurements/peers.md and README's table: asmp beside other tools in one
# guest, about a quarter of an hour. ROWS='script asmp' does some and leaves the documents alone.
bench-peers: setup
	tests/vm/peers.sh $(ROWS)

# How often a comparison is sure of what is not there, and of what is: a minute; no guest. Exits
# with 1 where a limit is missed.
bench-measure:
	cargo run --release -p asmp-measure --example false_alarms

# The figures of docs/measurements/analysis.md, some minutes; no guest.
bench-analysis:
	cargo run --release -p asmp-analysis --example bench
	$(MAKE) bench-responses

# Response times beside those of a peer, and 10,000 tasks under all policies. Exits with 1 where a
# limit is missed, and says which.
bench-responses:
	cargo run --release -p asmp-analysis --example peers

# Tests, oracles and the simulator on a million random sets, three for each seed; then analyze,
# place, budgets, chains and simulate on a million random files with every key. The core of yartek
# and the simulator run 10^5 random sets alike. Boards count the times of a million random files
# with exact ratios, or refuse them.
agreement:
	cargo run --release -p asmp-analysis --example bench -- agree 0 333334
	cargo run --release -p asmp-analysis --example bench -- files 0 1000000
	YARTEK_SETS=100000 cargo test --release -p asmp-yartek --test identity
	YARTEK_FILES=1000000 cargo test --release -p asmp-yartek --test clock

# Sequences of requests and of other people's hands on the fake machine, 10^5 that no night before
# had: ten minutes of one core. `make unit` has the first 2000, the same each time. Then a million
# messages to asmpd's socket, with changed bytes.
random:
	ASMP_RANDOM_SEED=$$(($$(date +%s) / 86400 * 100000)) ASMP_RANDOM_SEQUENCES=100000 \
		tests/counted.sh random cargo test --quiet -p asmp-shield --lib -- --show-output random_hands
	ASMP_MESSAGES=1000000 tests/counted.sh messages cargo test --quiet -p asmp-daemon --lib -- \
		--show-output no_changed_message

# Arbitrary input for every public function of crates/analysis, overflow a panic; 10^7 take about 15
# minutes of one core.
fuzz:
	cargo run --profile fuzz -p asmp-analysis --example bench -- fuzz \
		$(if $(is_slice),$(NIGHT)000000 $$(($(NIGHT) * 1000000 + 1000000)),0 10000000)

# A guest for yourself: make lab KERNEL=sid-rt CPUS=4 CMD='uname -a'; no CMD gives a shell. All of
# CMD runs there. ARCH=arm64: an emulated machine of that architecture.
ARCH =
KERNEL ?= sid-rt
CPUS ?= 4
lab: setup
	tests/vm/lab.sh --kernel $(KERNEL)$(ARCH:%=@%) --cpus $(CPUS) \
		--append 'nohz_full=1-3 rcu_nocbs=1-3' \
		$(if $(CMD),-- sh -c '$(subst ','\'',$(CMD))')
