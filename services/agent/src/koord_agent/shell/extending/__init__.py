"""Discovery, threads, controllers and pages of installed extensions."""
