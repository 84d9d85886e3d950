"""Decisions on their way to the log."""
