#!/usr/bin/env bash
# Counts the instructions of lookups, scans, puts and filter probes with valgrind's callgrind, and
# compares them with the limits in limits.txt, scans.txt, puts.txt and probes.txt; lookups of
# present keys may cost 2% more with paired filters than with blocked ones. Instructions do not
# depend on the machine's load, so that a regression of a lookup or a step is detected where times
# would not show it.
#
#   benches/steps/run.sh           count, and fail if a limit is exceeded
#   benches/steps/run.sh --write   count, and lower the limits to 1/25 above the counts
#
# Without valgrind, or without AVX2, which valgrind then does not offer to the filters either, it
# prints so and counts nothing; with TROMMEL_DEMAND=steps it fails.
set -euo pipefail
cd "$(dirname "$0")/../.."

KEYS=50000
READS=6400
limits=benches/steps/limits.txt
SCAN_KEYS=20000
SEEKS=500
scan_limits=benches/steps/scans.txt
PUTS=10000
put_limits=benches/steps/puts.txt
PROBED_KEYS=50000
probe_limits=benches/steps/probes.txt
# Growth of a count that is not reported.
SLACK=1.04

lacks() {
  echo "no $1 here: nothing is counted" >&2
  case ",${TROMMEL_DEMAND-}," in *,steps,*) exit 1 ;; esac
  exit 0
}

command -v valgrind >/dev/null || lacks valgrind
grep -qw avx2 /proc/cpuinfo || lacks AVX2

# Builds the whole workspace, as for the program, so that shared crates are compiled once.
cargo build --quiet --release --example lookups --example scans --example puts --example probes
examples=${CARGO_TARGET_DIR:-target}/release/examples
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# counted OUT OPTIONS... PROGRAM ARGUMENTS...: runs the program under callgrind, which counts
# nothing until an option says so, into files that begin with OUT.
counted() {
  local out=$1
  shift
  valgrind --quiet --tool=callgrind --callgrind-out-file="$out" --collect-atstart=no "$@" >"$out.rows"
}

# tree RUNS ROWS: one line per row with the instructions per key of gets and of multi-gets.
tree() {
  local out="$scratch/$2-$1"
  counted "$out" --toggle-collect='*gets' \
    --dump-after='lookups::gets' --dump-after='lookups::multi_gets' \
    "$examples/lookups" "$KEYS" "$1" "$READS" 1 "$2"
  # A file for each function that ended, in turn.
  local counts=()
  local part
  for part in 1 2 3 4; do
    counts+=("$(awk '/^totals:/ { printf "%.0f", $2 / '"$READS"' }' "$out.$part")")
  done
  printf '%-3s %s-present %s %s\n' "$1" "$2" "${counts[0]}" "${counts[1]}"
  printf '%-3s %s-missing %s %s\n' "$1" "$2" "${counts[2]}" "${counts[3]}"
}

# scans RUNS TREE MODE: one line per scan with its instructions per entry, or per seek with its
# steps.
scans() {
  local out="$scratch/scans-$2-$3" part=0 scan operations
  local names=(cursor-forward cursor-backward visit-forward visit-backward
    range-forward range-backward seek-forward seek-backward seek-visit)
  local dumps=()
  for scan in "${names[@]}"; do
    dumps+=("--dump-after=scans::${scan/-/_}_scan")
  done
  counted "$out" --toggle-collect='*_scan' "${dumps[@]}" \
    "$examples/scans" "$SCAN_KEYS" "$1" "$SEEKS" 1 "$2" "$3"
  for scan in "${names[@]}"; do
    # Each ends twice; by the second time the cache is warm.
    part=$((part + 2))
    operations=$SCAN_KEYS
    [ "${scan%%-*}" = seek ] && operations=$SEEKS
    awk -v runs="$1" -v row="$2-$3-$scan" -v operations="$operations" \
      '/^totals:/ { printf "%-3s %s %.0f\n", runs, row, $2 / operations }' "$out.$part"
  done
}

# puts MODE: instructions per key.
puts() {
  local out="$scratch/puts-$1"
  counted "$out" --toggle-collect='*_puts' --dump-after='*_puts' "$examples/puts" "$PUTS" 1 "$1"
  # It ends twice; the first time is the fill.
  awk -v mode="$1" '/^totals:/ { printf "%s %.0f\n", mode, $2 / '"$PUTS"' }' "$out.2"
}

# probes KIND: instructions per query, of a present key, of absent ones, and of 64 absent ones at
# once.
probes() {
  local out="$scratch/probes-$1" part=0 row
  counted "$out" --toggle-collect='*_probes' --dump-after='*_probes' \
    "$examples/probes" "$PROBED_KEYS" "$1:10" 1
  for row in present absent absent-64; do
    part=$((part + 1))
    awk -v row="$1-$row" \
      '/^totals:/ { printf "%s %.0f\n", row, $2 / '"$PROBED_KEYS"' }' "$out.$part"
  done
}

# present KIND ROW: instructions of a get of a present key, with such filters of 23.4 bits per key.
present() {
  local out="$scratch/$1-$2"
  counted "$out" --toggle-collect='lookups::gets' --dump-after='lookups::gets' \
    "$examples/lookups" 10000 4 "$READS" 1 "$2-present" "L0-=$1:23.4"
  awk '/^totals:/ { printf "%.1f", $2 / '"$READS"' }' "$out.1"
}

# Each runs on one core: two halves that take about as long.
{
  tree 1 deep
  tree 4 runs
  tree 11 runs
} >"$scratch/counts" &
trees=$!
{
  scans 1 deep cached
  scans 1 deep read
  scans 1 deep mapped
  scans 4 runs cached
  scans 12 runs cached
  scans 12 runs sorted
} >"$scratch/scan-counts"
for mode in log nolog batch; do puts "$mode"; done >"$scratch/put-counts"
for kind in standard blocked paired ribbon; do probes "$kind"; done >"$scratch/probe-counts"
for row in deep runs; do
  echo "$row-present $(present blocked $row) $(present paired $row)"
done >"$scratch/kinds"
wait "$trees"

# held WORDS COUNTS LIMITS WHAT: prints counts next to limits, both after a name of WORDS words. A
# missing count, another name, or a count above its limit is a failure.
held() {
  printf '%-35s %10s %8s\n' "$4" count limit
  paste -d ' ' "$2" <(sed '/^#/d' "$3") | awk -v words="$1" '
    {
      name = other = ""
      for (i = 1; i <= words; i++) {
        name = name $i " "
        other = other $(words + 1 + i) " "
      }
      count = $(words + 1)
      limit = $(2 * words + 2)
      over = (name != other || !count || count > limit)
      printf "%-35s %10d %8d%s\n", name, count, limit, over ? "  over" : ""
      failed += over
    }
    END { exit failed > 0 || NR == 0 }
  ' || {
    echo "$4 takes more instructions than $3 allows: find out why, or raise the limit" >&2
    failed=1
  }
}

# renewed WORDS NUMBERS COUNTS LIMITS: writes counts with some slack into the limits, NUMBERS
# numbers after a name of WORDS words, without raising any limit.
renewed() {
  {
    sed -n '/^#/p' "$4"
    paste -d ' ' "$3" <(sed '/^#/d' "$4") | awk -v words="$1" -v numbers="$2" -v slack="$SLACK" '
      {
        line = $1
        for (i = 2; i <= words; i++) line = line " " $i
        for (i = words + 1; i <= words + numbers; i++) {
          limit = sprintf("%.0f", $i * slack) + 0
          before = $(i + words + numbers) + 0
          line = line " " (before && before < limit ? before : limit)
        }
        print line
      }
    '
  } >"$scratch/limits"
  cp "$scratch/limits" "$4"
}

if [ "${1:-}" = --write ]; then
  renewed 2 2 "$scratch/counts" "$limits"
  renewed 2 1 "$scratch/scan-counts" "$scan_limits"
  renewed 1 1 "$scratch/put-counts" "$put_limits"
  renewed 1 1 "$scratch/probe-counts" "$probe_limits"
fi

failed=0
printf '%-4s %-14s %10s %8s %16s %8s\n' runs row get limit 'multi_get(64)' limit
paste -d ' ' "$scratch/counts" <(sed '/^#/d' "$limits") | awk '
  {
    printf "%-4s %-14s %10d %8d %16d %8d", $1, $2, $3, $7, $4, $8
    over = ($1 != $5 || $2 != $6 || !$3 || $3 > $7 || !$4 || $4 > $8)
    print over ? "  over" : ""
    failed += over
  }
  END { exit failed > 0 }
' || {
  echo "a lookup takes more instructions than $limits allows: find out why, or raise the limit" >&2
  failed=1
}

printf '\n%-14s %10s %10s %8s\n' 23.4\ bits blocked paired ratio
awk '
  {
    ratio = $2 > 0 && $3 > 0 ? $3 / $2 : 9
    printf "%-14s %10.1f %10.1f %8.4f%s\n", $1, $2, $3, ratio, (ratio > 1.02 ? "  over 1.02" : "")
    failed += (ratio > 1.02)
  }
  END { exit failed > 0 }
' "$scratch/kinds" || {
  echo "a key that is there costs over 2% more with paired filters: find out why" >&2
  failed=1
}

printf '\n'
held 2 "$scratch/scan-counts" "$scan_limits" 'a scan'
printf '\n'
held 1 "$scratch/put-counts" "$put_limits" 'a put'
printf '\n'
held 1 "$scratch/probe-counts" "$probe_limits" 'a probe'
exit $failed
