"""Shared ways in which commands reach the services and read the log.

The modules find addresses, connect to the log, translate times to positions, and rebuild states from the log.
"""
