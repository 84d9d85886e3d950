"""Queries of the read side as of a moment, and the types of their answers."""
