"""Admission of ElasticQuotas, and of pods that use a quota."""
