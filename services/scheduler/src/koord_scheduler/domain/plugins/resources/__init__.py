"""Plugins that compare requests with the resources and the load of nodes."""
