"""Discovery, threads and controllers of installed extensions."""
