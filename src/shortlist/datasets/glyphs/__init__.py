"""Letters drawn from the fonts of this machine: look-alike classes with a long tail, made on the spot."""

from shortlist.datasets.glyphs.dataset import GlyphSplits, glyphs, glyphs_full, standardize

__all__ = ["GlyphSplits", "glyphs", "glyphs_full", "standardize"]
