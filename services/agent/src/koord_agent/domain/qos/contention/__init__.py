"""Detection of disturbed pods and of those that disturb them."""
