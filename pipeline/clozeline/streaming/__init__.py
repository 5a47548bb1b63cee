"""Streaming: shards to batches. `TokenStream`, `TokenLoader` and `TokenDataset`."""
