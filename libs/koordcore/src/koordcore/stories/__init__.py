"""Stories: the events of one object in order, as sentences, for `koord explain` and the dashboard."""
