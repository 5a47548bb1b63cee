"""Stage `verify`: a data set against its own account, and its masks against chance."""
