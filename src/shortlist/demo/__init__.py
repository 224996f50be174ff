"""The demo: a few losses on look-alike letters, from training to a table of sets."""
