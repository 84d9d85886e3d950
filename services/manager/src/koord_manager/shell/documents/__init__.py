"""The HTTP API for documents: apply, delete, get."""
