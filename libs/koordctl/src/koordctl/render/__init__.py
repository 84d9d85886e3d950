"""Rendering of answers: tables, YAML and JSON, amounts with units."""
