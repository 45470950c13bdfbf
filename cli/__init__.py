"""The command line: parse, call, show. Installed as ``shardtool_cli``."""
