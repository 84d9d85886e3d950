"""Values that are read from quota objects and pods."""
