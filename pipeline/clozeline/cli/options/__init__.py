"""Options that several commands share, a file for each group; values become the library's option objects here."""
