"""Plugins that filter and evict pods."""
