"""Configuration files of components in Kubernetes' style: models of documents, and all problems of one at once."""
