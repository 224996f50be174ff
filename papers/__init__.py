"""The papers' own figures, measured with this library: ``python -m papers``."""
