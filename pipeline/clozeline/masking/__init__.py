"""Stage `mask`: packed rows to masked rows; and `Masking`, the same as a transform."""
