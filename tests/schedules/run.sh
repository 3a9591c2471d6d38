#!/usr/bin/env bash
# The lanes of threads' schedules: the engine built with shuttle's locks and threads.
#
#   tests/schedules/run.sh                 all scenarios, at CI size
#   TROMMEL_SCALE=60 tests/schedules/run.sh        a soak
#   tests/schedules/run.sh NAME            one scenario
#   TROMMEL_SCHEDULE=N tests/schedules/run.sh NAME one schedule of it: what a failure prints
#
# It builds into a target directory of its own, as everything is compiled with another flag.
set -euo pipefail
cd "$(dirname "$0")/../.."

CARGO_TARGET_DIR="$PWD/target/shuttle" RUSTFLAGS="--cfg shuttle" \
    cargo test --quiet --package trommel-tests --test schedules \
    --config 'profile.dev.package."*".opt-level=1' \
    --config 'profile.dev.package.shuttle-engine.opt-level=3' \
    -- --nocapture "$@"
