"""Decide `koord apply` and `koord delete`: turn one document into the facts that mirror it."""
