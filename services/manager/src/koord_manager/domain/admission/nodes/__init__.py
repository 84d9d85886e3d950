"""Admission of nodes."""
