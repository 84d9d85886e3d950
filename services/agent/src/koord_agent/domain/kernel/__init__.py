"""Parsers for texts of the kernel and of machine tools, and the names of kernel files."""
