"""Detection of disturbed pods, and of the pods that disturb them."""
