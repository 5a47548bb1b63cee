"""Stage `shard`: raw text to text shards."""
