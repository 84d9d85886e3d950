"""Admission of ElasticQuotas, and of pods against their quota."""
