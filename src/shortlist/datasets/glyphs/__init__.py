"""Data sets of letters that are drawn from real fonts: look-alike classes with a long tail."""

from shortlist.datasets.glyphs.dataset import GlyphSplits, glyphs, glyphs_full, standardize

__all__ = ["GlyphSplits", "glyphs", "glyphs_full", "standardize"]
