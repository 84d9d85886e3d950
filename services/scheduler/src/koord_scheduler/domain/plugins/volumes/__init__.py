"""Plugins that restrict the nodes of pods by their volumes."""
