"""Decisions of `koord apply` and `koord delete`: one document to the facts that mirror it."""
