"""Collectors: what is measured on a machine, and when."""
