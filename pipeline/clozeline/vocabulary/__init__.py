"""Stage `vocab`: text shards to a tokenizer."""
