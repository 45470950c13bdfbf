"""Hand over to the command line, which the core does not import."""

import sys
from contextlib import suppress
from pathlib import Path

# Python looks for modules in the folder it is started in, which may be a checkpoint's; libraries import many names.
with suppress(OSError):  # of a folder that is gone
    if sys.path and Path(sys.path[0]) == Path.cwd():
        del sys.path[0]

from runpy import run_module

run_module("shardtool_cli", run_name="__main__", alter_sys=True)
