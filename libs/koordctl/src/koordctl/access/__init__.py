"""Access to the services and to the log: addresses, errors, positions, the past, folds from zero."""
