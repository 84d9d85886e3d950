"""Admission of pods and of bindings."""
