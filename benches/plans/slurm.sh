#!/bin/sh
# A plan on a cluster, as a Slurm job array of eight shards:
#
#   sbatch --array=1-8 benches/plans/slurm.sh benches/plans/accuracy.toml
#
# A job that was killed is submitted again unchanged: it does not repeat its finished measurements.
# When all are done, on any machine:
#
#   trommel tune report results/accuracy.*.jsonl -o accuracy.html --csv accuracy.csv
#
#SBATCH --job-name=trommel-tune
#SBATCH --cpus-per-task=1
#SBATCH --mem=4G
#SBATCH --time=04:00:00
#SBATCH --exclusive
set -eu
plan=$1
name=$(basename "$plan" .toml)
mkdir -p results
exec trommel tune run "$plan" --dir "${TMPDIR:-/tmp}" \
    --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" \
    -o "results/$name.$SLURM_ARRAY_TASK_ID.jsonl"
