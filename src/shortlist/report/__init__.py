"""The page about some runs: tables, drawings and examples in one file."""
