#!/usr/bin/env bash
# The main job on the embedded model: shard it, look into it, load it strictly, make a picture with the sharded UNet.
# Writes to build/ and dog.png in the current folder; `make demo` runs it.
set -euo pipefail

shardtool shard demo --max-size 1MB -o build/demo-sharded --overwrite
shardtool inspect build/demo-sharded/unet
shardtool load build/demo-sharded/unet --device cpu
shardtool generate --unet build/demo-sharded/unet "dog" -o dog.png --overwrite --seed 7 --preview
