"""``python -m shardtool`` and, in a checkout, ``python -m cli``."""

from .start import main

main()
