"""Publication of quotas: status, explanations, metrics."""
