"""What is on disk: manifest, ledger, shard files, publication."""
