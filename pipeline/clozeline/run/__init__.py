"""Jobs over executors: planning, resuming, progress."""
