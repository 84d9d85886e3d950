"""The configuration in force, applied to each node."""
