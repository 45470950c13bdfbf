"""``python -m shardtool`` and, in a checkout, ``python -m cli``."""

from .app import main

main()
