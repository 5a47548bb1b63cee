"""Stage `pack`: text shards to rows of token ids, unmasked."""
