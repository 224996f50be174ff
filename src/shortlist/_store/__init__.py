"""Files on disk: whole or not there, sealed where a number depends on them, and what a doctor says."""
