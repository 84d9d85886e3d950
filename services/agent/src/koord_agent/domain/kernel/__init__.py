"""Texts of the kernel and of the tools of the machine, parsed into values, and the names of kernel files."""
