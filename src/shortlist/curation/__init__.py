"""Making and mending data: build, check, describe, votes, contact sheets."""
