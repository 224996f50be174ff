"""Suites: many methods, options and seeds in one file, of which missing runs are trained."""
