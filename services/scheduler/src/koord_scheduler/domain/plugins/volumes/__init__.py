"""Plugins that tie pods to nodes by their volumes."""
