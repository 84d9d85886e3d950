"""What objects and pods say of quotas."""
