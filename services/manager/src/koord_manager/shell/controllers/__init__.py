"""The controllers: each takes its keys from the work queue, decides the objects, and returns the number of changes."""
