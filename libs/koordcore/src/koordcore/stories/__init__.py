"""Stories: what the log says about one object, in order and in sentences. Pure; for `koord explain` and dashboard."""
