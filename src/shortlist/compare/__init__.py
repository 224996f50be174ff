"""Compare runs: means over seeds, and tests of their differences."""
