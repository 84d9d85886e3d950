"""The HTTP API for documents: apply, delete and get objects."""
