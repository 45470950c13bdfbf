#!/usr/bin/env bash
# Make the pictures of the pages with the tool itself. To be run after the embedded model has changed:
#   PATH="$PWD/.venv/bin:$PATH" bash docs/pictures.sh
set -euo pipefail
cd "$(dirname "$0")/.."

shardtool generate "dog" --seed 7 --steps 20 -o docs/images/dog.png --metadata public --overwrite --quiet
shardtool generate dog cat fox panda "red apple" rocket house robot --seed 1-2 --steps 8 -o build/pictures/ --grid \
  --overwrite --quiet
cp build/pictures/grid.png docs/images/grid.png
