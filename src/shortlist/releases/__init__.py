"""Releases: a list of models that were promoted, and which of them is served."""

from shortlist.releases.releases import Release, Releases, ReleasesError, is_releases

__all__ = ["Release", "Releases", "ReleasesError", "is_releases"]
