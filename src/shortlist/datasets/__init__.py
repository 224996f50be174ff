"""Data sets: an embedded one, synthetic ones with a known limit, and the published ones by path."""

from shortlist.datasets.splits import Split, Splits, TensorSplit

__all__ = ["Split", "Splits", "TensorSplit"]
