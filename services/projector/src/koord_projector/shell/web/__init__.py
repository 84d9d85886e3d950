"""The read API and the dashboard over HTTP."""
