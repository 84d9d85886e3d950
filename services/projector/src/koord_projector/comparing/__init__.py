"""Compare the tables with what folding the log gives. Read `comparison` first."""
