"""The controllers: each takes its keys from the work queue, decides them, and returns the number of changes."""
