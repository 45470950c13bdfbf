"""Checkpoints as files on disk: headers, names, indexes, plans, byte moving, publishing. Standard library only."""
