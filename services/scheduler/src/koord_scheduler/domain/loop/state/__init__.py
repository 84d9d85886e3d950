"""The state of a scheduler."""
