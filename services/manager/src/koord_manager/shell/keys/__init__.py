"""Keys of an installation: `key_secrets` keeps them in Secrets, `token_reviews` checks the tokens of agents' pods."""
