#!/usr/bin/env bash
# The unit tests of every crate that has `unsafe`, and of those that call it, under the address and
# leak sanitizers. Takes some ten minutes of two cores, most of it to build.
#
#   tests/sanitizers/run.sh
#
# For Linux on x86-64. The sanitizer is one of the compiler's unstable options: RUSTC_BOOTSTRAP lets
# a stable one take it. The standard library is the usual one, not built for it, so an access of its
# own is not checked, but what it allocates is. See docs/concurrency.md for what this stands in for.
set -euo pipefail
cd "$(dirname "$0")/../.."

export CARGO_TARGET_DIR="$PWD/target/asan" RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address"
tests() {
  cargo test --quiet --target x86_64-unknown-linux-gnu \
    --config 'profile.dev.package."*".opt-level=1' --lib "$@"
}

tests -p trommel-memtable -p trommel-vfs -p trommel-sstable -p trommel
# Without those that measure rates, which ask the same code the same things for many minutes.
tests -p trommel-filter -- --skip rate_tests
