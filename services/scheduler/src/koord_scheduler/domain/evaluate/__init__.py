"""Finds the best node for a pod: filters and scores, with results cached per pod equivalence class."""
