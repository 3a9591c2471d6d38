#!/usr/bin/env bash
# The lanes of threads' schedules, and the models of their smallest pieces.
#
#   tests/schedules/run.sh                          all of both, at CI size
#   TROMMEL_SCALE=60 tests/schedules/run.sh         a soak
#   tests/schedules/run.sh NAME                     one scenario
#   TROMMEL_SCHEDULE=N tests/schedules/run.sh NAME  one schedule of it: what a failure prints
#   tests/schedules/run.sh --build                  build only
#
# Each of the two builds into a target directory of its own, as all is compiled with another flag.
# TROMMEL_LANES_JSON names a file that gets a line for each lane.
set -euo pipefail
cd "$(dirname "$0")/../.."

# Less optimised than elsewhere, as building is half of the time.
only_build=()
if [ "${1-}" = --build ]; then
  only_build=(--no-run)
  shift
fi
build=(--quiet "${only_build[@]}" --config 'profile.dev.package."*".opt-level=1')

CARGO_TARGET_DIR="$PWD/target/shuttle" RUSTFLAGS="--cfg shuttle" \
    cargo test "${build[@]}" --config 'profile.dev.package.shuttle-engine.opt-level=3' \
    --package trommel-tests --test schedules -- --nocapture "$@"

[ $# -eq 0 ] || exit 0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
CARGO_TARGET_DIR="$PWD/target/loom" RUSTFLAGS="--cfg trommel_loom" \
    cargo test "${build[@]}" --config 'profile.dev.package.trommel.opt-level=0' \
    --package trommel-memtable --package trommel-sstable --package trommel \
    --lib models:: -- --nocapture | tee "$log"
[ ${#only_build[@]} -eq 0 ] || exit 0
# Crates print their counters; only the package of tests keeps them.
[ "$(grep -c '^{"lane": "loom/' "$log")" -eq 14 ] || { echo "a model did not run" >&2; exit 1; }
[ -z "${TROMMEL_LANES_JSON-}" ] || grep '^{"lane"' "$log" >> "$TROMMEL_LANES_JSON"
