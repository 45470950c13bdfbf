"""Hand over to the command line, which the core does not import."""

from runpy import run_module

run_module("shardtool_cli", run_name="__main__", alter_sys=True)
