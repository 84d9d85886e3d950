"""The configuration in force, resolved for each node."""
