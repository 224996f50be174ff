"""Releases: a list of models that were promoted, and which of them is served."""

from shortlist.releases.doctor import examine_releases
from shortlist.releases.releases import Judged, Release, Releases, ReleasesError, is_releases

__all__ = ["Judged", "Release", "Releases", "ReleasesError", "is_releases"]
