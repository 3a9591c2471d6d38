#!/usr/bin/env bash
# The memtable's tests, its arena and list among them, under the address and leak sanitizers.
#
#   tests/sanitizers/run.sh
#
# For Linux on x86-64. The sanitizer is one of the compiler's unstable options: RUSTC_BOOTSTRAP lets
# a stable one take it. The standard library is the usual one, not built for it, so an access of its
# own is not checked, but what it allocates is. See docs/concurrency.md for what this stands in for.
set -euo pipefail
cd "$(dirname "$0")/../.."

CARGO_TARGET_DIR="$PWD/target/asan" RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address" \
    cargo test --quiet --target x86_64-unknown-linux-gnu \
    --config 'profile.dev.package."*".opt-level=1' \
    --package trommel-memtable --lib
