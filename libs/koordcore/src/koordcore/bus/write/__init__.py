"""Appending facts with an expected position."""
