"""What is published about quotas: status, explanations, metrics."""
