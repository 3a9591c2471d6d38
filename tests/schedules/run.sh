#!/usr/bin/env bash
# The lanes of thread schedules, and the models of their smallest parts.
#
#   tests/schedules/run.sh                          all of both, at CI size
#   TROMMEL_SCALE=60 tests/schedules/run.sh         a soak
#   tests/schedules/run.sh NAME                     one scenario
#   TROMMEL_SCHEDULE=N tests/schedules/run.sh NAME  one schedule of it, as printed by a failure
#   tests/schedules/run.sh --build                  build only
#
# Only our own crates are compiled with the other flag: the rest is shared with `cargo test`.
# TROMMEL_LANES_JSON names a file that gets a line for each lane.
set -euo pipefail
cd "$(dirname "$0")/../.."

only_build=()
if [ "${1-}" = --build ]; then
  only_build=(--no-run)
  shift
fi

# Less optimised than elsewhere, because building is half of the time.
optimised() {
  local level=$1
  shift
  printf -- '--config=profile.dev.package.%s.opt-level='"$level"'\n' "$@"
}
mapfile -t shuttle < <(
  optimised 3 shuttle-engine
  optimised 1 trommel trommel-sstable trommel-vfs
)
mapfile -t loom < <(
  optimised 0 loom regex-automata regex-syntax tracing-subscriber \
    trommel trommel-filter trommel-memtable trommel-sstable trommel-tuning trommel-vfs
)

RUSTC_WORKSPACE_WRAPPER=$PWD/tests/schedules/with-shuttle \
  cargo test --quiet "${only_build[@]}" "${shuttle[@]}" --test schedules -- --nocapture "$@"

[ $# -eq 0 ] || exit 0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
RUSTC_WORKSPACE_WRAPPER=$PWD/tests/schedules/with-loom \
  cargo test --quiet "${only_build[@]}" "${loom[@]}" \
  --package trommel-memtable --package trommel-sstable --package trommel \
  --lib models:: -- --nocapture | tee "$log"
[ ${#only_build[@]} -eq 0 ] || exit 0
# Crates print their counters; only the tests' package records them.
[ "$(grep -c '^{"lane": "loom/' "$log")" -eq 14 ] || { echo "a model did not run" >&2; exit 1; }
[ -z "${TROMMEL_LANES_JSON-}" ] || grep '^{"lane"' "$log" >> "$TROMMEL_LANES_JSON"
