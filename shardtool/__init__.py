"""shardtool: shard diffusion checkpoints, look into them, load them where they fit and make pictures with them."""

__version__ = "0.1.0"
