"""Queries of the read side as of a moment, and the shapes of their answers."""
