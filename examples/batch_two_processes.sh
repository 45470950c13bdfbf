#!/usr/bin/env bash
# Many pictures, two processes: torch's launcher starts one for each device, here two on the CPU. Prompts × seeds are
# split between them; an image depends on its own seed only, so the files are those of one process. Started again after
# an interruption, it makes what is missing.
#
#   examples/batch_two_processes.sh [OUT]
#
# With two GPUs: leave out --device. More machines: see docs/several-gpus.md.
set -euo pipefail

out=${1:-build/batch}
mkdir -p "$out"
printf '%s\n' "dog" "cat" "red apple" "rocket" > "$out/prompts.txt"

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
torchrun --nproc-per-node 2 -m shardtool generate --prompts-file "$out/prompts.txt" --seed 1-2 \
  --steps "${STEPS:-20}" --device cpu -o "$out/" --skip-existing --grid
