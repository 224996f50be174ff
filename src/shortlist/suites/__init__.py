"""Suites: many methods, options and seeds from one file, trained where they are missing."""
