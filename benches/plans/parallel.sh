#!/bin/sh
# Runs a plan with GNU parallel, in eight shards on the machines of a list (one per line, as for
# --sshloginfile; ":" is this one):
#
#   benches/plans/parallel.sh benches/plans/accuracy.toml machines
#
# Each machine has the program in its PATH, and sees this directory under the same path. Each runs
# one shard at a time, because parallel shards disturb each other's times. A run that was
# interrupted continues when it is started again.
set -eu
plan=$1
machines=${2:-:}
name=$(basename "$plan" .toml)
[ "$machines" = : ] && where="--sshlogin :" || where="--sshloginfile $machines"
mkdir -p results
# shellcheck disable=SC2086 # the flag and its value are two words
parallel --jobs 1 $where --workdir . --line-buffer \
    trommel tune run "$plan" --shard "{}/8" -o "results/$name.{}.jsonl" ::: 1 2 3 4 5 6 7 8
trommel tune report results/"$name".*.jsonl -o "$name.html" --csv "$name.csv"
