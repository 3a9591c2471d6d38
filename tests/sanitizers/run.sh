#!/usr/bin/env bash
# Runs the unit tests of every crate that has `unsafe`, and of its callers, under the address and
# leak sanitizers. Takes some ten minutes of two cores, mostly to build.
#
#   tests/sanitizers/run.sh
#
# For Linux on x86-64. The sanitizer is an unstable option of the compiler: RUSTC_BOOTSTRAP makes a
# stable one accept it. The standard library is not instrumented, so its own accesses are not
# checked, but its allocations are. docs/concurrency.md says what this replaces.
set -euo pipefail
cd "$(dirname "$0")/../.."

export CARGO_TARGET_DIR="$PWD/target/asan" RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address"
tests() {
  cargo test --quiet --target x86_64-unknown-linux-gnu \
    --config 'profile.dev.package."*".opt-level=1' --lib "$@"
}

tests -p trommel-memtable -p trommel-vfs -p trommel-sstable -p trommel
# Without tests that measure rates, which repeat the same calls for many minutes.
tests -p trommel-filter -- --skip rate_tests
