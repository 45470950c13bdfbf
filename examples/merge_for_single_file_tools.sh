#!/usr/bin/env bash
# Give a tool that reads no shards the one file it wants, and prove that it has the same tensors.
#
#   examples/merge_for_single_file_tools.sh [SHARDED_COMPONENT] [FILE]
#
# The names of the tensors stay those of diffusers. Programs that expect the names of the original Stable Diffusion
# code (ComfyUI, AUTOMATIC1111) need their own conversion of names after this.
set -euo pipefail

sharded=${1:-build/single/sharded/unet}
file=${2:-build/single/unet.safetensors}

if [ $# -eq 0 ]; then # something to try it on
  shardtool shard demo --component unet --max-size 1MB -o build/single/sharded --overwrite --quiet > /dev/null
fi

shardtool merge "$sharded" -o "$file" --overwrite
shardtool diff "$sharded" "$file"
