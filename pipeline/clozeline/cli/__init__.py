"""The command line: click only, one file a command; calls the library."""
