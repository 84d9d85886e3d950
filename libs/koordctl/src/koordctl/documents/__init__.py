"""Reading and checking of the files that a user names: manifests and configuration files."""
