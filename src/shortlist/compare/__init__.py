"""Runs beside each other: means over seeds, and whether a difference is more than chance."""
