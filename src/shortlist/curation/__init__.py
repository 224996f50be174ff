"""Make and correct data sets: build, check, describe, votes, contact sheets."""
