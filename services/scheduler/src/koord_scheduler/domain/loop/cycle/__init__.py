"""One scheduling cycle."""
