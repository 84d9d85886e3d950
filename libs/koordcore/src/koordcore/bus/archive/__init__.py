"""The archive of the log: facts that the stream need not keep, in files of a folder or an S3 store."""
