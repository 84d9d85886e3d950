"""ElasticQuotaProfiles: the root quota of each profile."""
