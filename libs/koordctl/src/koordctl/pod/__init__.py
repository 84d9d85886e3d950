"""One pod: its life (`koord explain pod`) and its trace."""
