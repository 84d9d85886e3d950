"""Files that a user names: manifests, configuration files, and what is wrong in them."""
