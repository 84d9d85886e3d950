"""Installed extensions at work: discovery, threads, controllers."""
