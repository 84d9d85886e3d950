"""Formatting of output: tables, YAML and JSON, and amounts with their units."""
