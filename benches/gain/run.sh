#!/usr/bin/env bash
# Compares two builds of the program, and two kinds of filters: see README.md.
#
#   benches/gain/run.sh BEFORE AFTER OUT [KEYS] [ROUNDS]
#
# TROMMEL_BEFORE and TROMMEL_AFTER are the names of the two on the page, such as their commits. By
# default each is the commit in its records, or else its --version.
set -euo pipefail

before=$1 after=$2 out=$3 keys=${4:-5M} rounds=${5:-4}
mkdir -p "$out"
rm -f "$out"/*.jsonl
stores=$(mktemp -d "$out/stores.XXXXXX")
trap 'rm -rf "$stores"' EXIT

# One start of a program: its records are appended to the file $2.
bench() {
    local program=$1 file=$2
    shift 2
    "$program" bench --num="$keys" --value_size=32 --cache_size=2G --json="$file" "$@" >/dev/null
}

paired=L0=paired:16,L1-=paired:12
blocked=L0=blocked:16,L1-=blocked:12
runs=(--disable_auto_compactions --write_buffer_size=24M
    --level0_slowdown_writes_trigger=1000 --level0_stop_writes_trigger=1000)
reads=(--use_existing_db --reads=1M --batch_size=64
    --benchmarks=readrandom,readmissing,multireadrandom)

"$before" --version >"$out/before.version"
"$after" --version >"$out/after.version"
for side in before after; do
    echo "filling for $side" >&2
    bench "${!side}" "$out/fill-$side.jsonl" --benchmarks=fillrandom,compact --db="$stores/$side-deep"
    bench "${!side}" "$out/fill-$side.jsonl" --benchmarks=fillrandom --db="$stores/$side-runs" \
        "${runs[@]}"
done
for ((round = 1; round <= rounds; round++)); do
    # ABBA: drift over time affects both equally.
    order=(before after)
    ((round % 2)) || order=(after before)
    for side in "${order[@]}"; do
        echo "round $round of $rounds: $side" >&2
        bench "${!side}" "$out/deep-$side.jsonl" "${reads[@]}" --db="$stores/$side-deep"
        bench "${!side}" "$out/runs-$side.jsonl" "${reads[@]}" "${runs[@]}" --db="$stores/$side-runs"
    done
    kinds=(blocked paired)
    ((round % 2)) || kinds=(paired blocked)
    for kind in "${kinds[@]}"; do
        echo "round $round of $rounds: $kind" >&2
        bench "$after" "$out/$kind.jsonl" --benchmarks=fillrandom,compact --filters="${!kind}" \
            --db="$stores/kind"
        rm -rf "$stores/kind"
    done
done

page=$(dirname "$0")/page.py
python3 "$page" "$out" "$keys" "$rounds"
