"""Feature gates and translated command lines."""
