"""Maintain the root quota of each ElasticQuotaProfile."""
