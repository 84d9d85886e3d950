"""What is published about quotas: status, explanations, gauges."""
