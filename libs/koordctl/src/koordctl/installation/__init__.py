"""Operation of an installation: keys, tokens, backups, the nightly job and `koord doctor`."""
