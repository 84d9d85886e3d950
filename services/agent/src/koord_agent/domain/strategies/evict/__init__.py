"""Evictions for CPU and memory."""
