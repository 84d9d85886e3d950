"""Copies of the streams in files: take a backup from a running server, check it, and restore it on an empty one."""
