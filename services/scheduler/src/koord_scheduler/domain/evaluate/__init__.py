"""Finds the best node for a pod: filters and scores, with cached answers per pod equivalence class."""
