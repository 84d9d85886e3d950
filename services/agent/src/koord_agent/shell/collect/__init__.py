"""Collectors of measurements on a machine."""
