"""Plugins that compare requests with what nodes have, and their load."""
