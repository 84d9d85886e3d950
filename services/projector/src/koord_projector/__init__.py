"""The projector: folds the log into Postgres and serves the read API and the dashboard."""
