"""Impure part of device discovery: it reads the machine, runs the tools, and writes the file."""
