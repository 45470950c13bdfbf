#!/usr/bin/env bash
# A release check for a pipeline: cut it for a host that takes files up to 2 GB, prove that nothing was changed, record
# digests, and compare a picture with the golden one that is kept under version control.
#
#   examples/ci_release.sh [PIPELINE] [OUT]
#
#   LIMIT    the largest file the host takes                  (2GB)
#   GOLDEN   the picture to compare with, made if absent      (OUT.golden.png)
#   PROMPT   what the golden picture shows                    (dog)
#   STEPS    its denoising steps                              (20)
#   EXPECT   same, or close:PSNR where machines differ        (same)
#
# Exit codes: 0 fine, 1 a check said no, others as in the table of exit codes.
set -euo pipefail

source=${1:-demo}
out=${2:-build/release}
golden=${GOLDEN:-$out.golden.png}
mkdir -p "$(dirname "$out")" "$(dirname "$golden")"

shardtool shard "$source" --max-size "${LIMIT:-2GB}" -o "$out" --digests --verify --overwrite
shardtool verify "$out" --deep --against "$source" --json > "$out.verify.json"

if [ ! -e "$golden" ]; then
  echo "no golden picture yet: making $golden from the source; keep it" >&2
  shardtool generate --model "$source" "${PROMPT:-dog}" --seed 7 --steps "${STEPS:-20}" -o "$golden"
fi
shardtool generate --model "$out" --replay "$golden" --expect "${EXPECT:-same}"
