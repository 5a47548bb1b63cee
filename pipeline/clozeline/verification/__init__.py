"""Data sets checked against their own account."""
