"""The fold of the log with the indexes that the decisions of the manager read."""
