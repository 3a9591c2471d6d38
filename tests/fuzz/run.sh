#!/usr/bin/env bash
# Fuzzes every target, or those named, on the stable toolchain: see tests/fuzz/README.md.
#
#   tests/fuzz/run.sh [--seconds N] [--jobs N] [--asan] [TARGET...]
#   tests/fuzz/run.sh --build                                        build only
#
# Each target first replays its corpus, then continues for N seconds (default 2); targets whose
# inputs are whole stores, which take milliseconds each, for six times as long. Exits with 1 after a
# finding: it is in tests/fuzz/findings/TARGET/ and is rerun by the printed command. FUZZ_TIMEOUT is
# the time limit of an input in seconds (default 10, because the machine may be busy).
set -euo pipefail
cd "$(dirname "$0")"

seconds=2 jobs=2 asan="" only_build="" targets=()
while [ $# -gt 0 ]; do
  case "$1" in
    --seconds) seconds=$2; shift 2 ;;
    --jobs) jobs=$2; shift 2 ;;
    --asan) asan=1; shift ;;
    --build) only_build=1; shift ;;
    -*) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    *) targets+=("$1"); shift ;;
  esac
done

host=$(rustc -vV | sed -n 's/^host: //p')
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
flags="$flags -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
flags="$flags -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
target_dir=target
if [ -n "$asan" ]; then
  # The runtime comes with the toolchain; only the flag is unstable.
  export RUSTC_BOOTSTRAP=1
  flags="$flags -Zsanitizer=address"
  target_dir=target/asan
fi
RUSTFLAGS="$flags" cargo build --release --quiet --target "$host" --target-dir "$target_dir"
[ -z "$only_build" ] || exit 0
program=$PWD/$target_dir/$host/release/trommel-fuzz

if [ ${#targets[@]} -eq 0 ]; then
  mapfile -t targets < <(TROMMEL_FUZZ_TARGET=list "$program" 2>/dev/null)
fi

one() {
  local target=$1 seconds=$seconds seeds log begin
  export TROMMEL_FUZZ_TARGET=$target
  seeds=$(mktemp -d)
  log=$seeds.log
  if ! TROMMEL_FUZZ_SEEDS=$seeds "$program" >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    echo "error: the seeds of $target were not written" >&2
    return 1
  fi
  mkdir -p "corpus/$target" "findings/$target" "regressions/$target"
  begin=$(date +%s.%N)
  case "$target" in store | operations) seconds=$((seconds * 6)) ;; esac
  if ! "$program" -max_total_time="$seconds" -timeout="${FUZZ_TIMEOUT:-10}" -rss_limit_mb=1024 \
    -malloc_limit_mb=128 -max_len=65536 -print_final_stats=1 -verbosity=1 \
    -artifact_prefix="findings/$target/" "corpus/$target" "regressions/$target" "$seeds" \
    >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "again: TROMMEL_FUZZ_TARGET=$target $program $(ls -td "findings/$target"/* | head -n 1)" >&2
    return 1
  fi
  local executions edges features inputs
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  read -r edges features inputs < <(
    sed -n 's/.*DONE *cov: \([0-9]*\) ft: \([0-9]*\) corp: \([0-9]*\).*/\1 \2 \3/p' "$log")
  awk -v t="$target" -v s="$(echo "$(date +%s.%N) $begin" | awk '{print $1 - $2}')" \
    -v x="$executions" -v e="$edges" -v f="$features" -v c="$inputs" 'BEGIN {
      printf "{\"lane\": \"fuzz/%s\", \"seconds\": %.1f, \"counters\": {\"corpus\": %d, ", t, s, c
      printf "\"edges\": %d, \"executions\": %d, \"features\": %d}}\n", e, x, f
    }' | tee -a "${TROMMEL_LANES_JSON:-/dev/null}"
  rm -rf "$seeds" "$log"
}
export -f one
export program seconds
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -euo pipefail -c 'one {}' || exit 1
