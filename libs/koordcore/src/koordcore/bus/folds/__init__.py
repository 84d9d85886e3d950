"""Folding of the log: the runner that every service uses, and replay up to a position."""
