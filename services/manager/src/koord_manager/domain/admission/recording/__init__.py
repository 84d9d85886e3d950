"""Reduce objects and patches to the parts that an admission decision records."""
