"""Checkpoints as files on disk: headers, names, indexes, plans, byte moving, publishing. Standard library only.

Where to look; a module imports those of its own line and of the lines above it::

    what a file says        files foreign strict_json dtypes header names index links quantisation
    what a folder holds     folder config classes digests agreement inventory
    what of it is meant     beside resolve needed contents selection
    what it amounts to      tree summary reading compare
    what will be written    layout plan legacy_names sources move cast job shard
    how it gets its name    undisturbed swap lock target publish
    how it is written       writeback hashing record carry guard reread write
    how it is mended        repair_plan repair_run
"""
