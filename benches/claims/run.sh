#!/usr/bin/env bash
# Measures claims about filters: see README.md.
#
#   benches/claims/run.sh counts PROGRAM OUT    figures that do not depend on the machine's load
#   benches/claims/run.sh times  PROGRAM OUT    figures that do: the machine must be idle
#   benches/claims/run.sh page   PROGRAM OUT    the page and its plots, from both
#
# OUT is on a real disk. Results that are in OUT already are not measured again, except for the
# interleaved pairs.
set -euo pipefail
part=$1 program=$(realpath "$2") out=$3
mkdir -p "$out"
out=$(realpath "$out")
cd "$(dirname "$0")/../.."

plan() {
    echo "plan $1" >&2
    "$program" tune run "benches/plans/$1.toml" --dir "$out" -o "$out/$1.jsonl"
}

# False-positive rates of filters of these specs: rates MILLIONS SPECS.
rates() {
    "$program" filter-bench --filters "$2" --keys 100K --m-keys-total-max 4 --m-queries 0.01 \
        --m-rate-queries "$1" --json "$out/rates.jsonl" >/dev/null
}

# Instructions of a get, counted by valgrind: "FILTERS ROW COUNT" lines.
instructions() {
    cargo build --quiet --release -p trommel-harness --example lookups
    local lookups=${CARGO_TARGET_DIR:-target}/release/examples/lookups reads=6400
    local filters=$1 row=$2 dump="$out/callgrind"
    rm -f "$dump"*
    valgrind --quiet --tool=callgrind --callgrind-out-file="$dump" --collect-atstart=no \
        --toggle-collect='*gets' --dump-after='lookups::gets' \
        "$lookups" 50000 4 "$reads" 1 "$row" "$filters" >/dev/null
    local count
    count=$(awk '/^totals:/ { printf "%.1f", $2 / '"$reads"' }' "$dump.1")
    rm -f "$dump"*
    printf '{"filters":"%s","row":"%s","instructions":%s}\n' "$filters" "$row" "$count" \
        >>"$out/instructions.jsonl"
}

# Blocked and paired filters in alternation, 30 times: pairs NAME BLOCKED PAIRED.
pairs() {
    local name=$1 kind round
    local -A filters=([blocked]=$2 [paired]=$3)
    local common=(--num=1M --value_size=32 --cache_size=2G)
    rm -f "$out/pairs-$name"-*.jsonl
    for kind in blocked paired; do
        "$program" bench "${common[@]}" --db="$out/$kind" --filters="${filters[$kind]}" \
            --write_buffer_size=8M --benchmarks=filluniquerandom,waitforcompaction \
            --json="$out/pairs-$name-fill-$kind.jsonl" >/dev/null
    done
    for ((round = 1; round <= 30; round++)); do
        echo "pairs of $name: $round of 30" >&2
        # ABBA: drift over time affects both equally.
        local order=(blocked paired)
        ((round % 2)) || order=(paired blocked)
        for kind in "${order[@]}"; do
            "$program" bench "${common[@]}" --db="$out/$kind" --use_existing_db --reads=1M \
                --benchmarks='readrandom[W1-X1],readmissing' \
                --json="$out/pairs-$name-$kind.jsonl" >/dev/null
        done
    done
    rm -rf "$out/blocked" "$out/paired"
}

case $part in
counts)
    for name in accuracy five-levels overlapping equal-rate equal-memory last-level; do plan $name; done
    if [ ! -e "$out/rates.jsonl" ]; then
        rates 300 paired:23.4,blocked:23.4,standard:23.4,blocked:28
        rates 1000 paired:29.522,blocked:38.825,ribbon:20.311
    fi
    "$program" rates --fpr 1e-6 --fpr 1e-7 --format json >"$out/theory.json"
    if [ ! -e "$out/instructions.jsonl" ] && command -v valgrind >/dev/null; then
        for row in deep-present deep-missing runs-present runs-missing; do
            for kind in blocked paired; do instructions "L0-=$kind:23.4" $row; done
        done
    fi
    ;;
times)
    plan hundredfold
    pairs same-bits L0-=blocked:23.4 L0-=paired:23.4
    pairs defaults L0=blocked:16,L1-=blocked:12 L0=paired:16,L1-=paired:12
    ;;
page)
    docs=docs/measurements
    for name in accuracy five-levels equal-rate equal-memory last-level; do
        "$program" tune report "$out/$name.jsonl" --plot "$out/plots/$name" >/dev/null
    done
    for plot in accuracy/predicted accuracy/off five-levels/waste-1 equal-rate/waste-1 \
        last-level/waste-1 last-level/waste-3; do
        cp "$out/plots/$plot.svg" "$docs/filters-claims-${plot/\//-}.svg"
    done
    python3 benches/claims/page.py "$out" $docs >"$out/page.md"
    cp "$out/page.md" $docs/filters-claims.md
    ;;
*)
    echo "counts, times or page, not $part" >&2
    exit 2
    ;;
esac
