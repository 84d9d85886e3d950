"""Reduce objects and patches to the parts that enter the log with an admission decision: small, and without secrets."""
