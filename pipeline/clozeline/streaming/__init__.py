"""Shards to batches of tensors."""
