"""Where something was seen, as coarsely as the person wants it known."""

from math import ceil, cos, floor, hypot, radians
from typing import NamedTuple

from shortlist._bounds import require_number

COARSE = 0.1
"""Side of the cell, in degrees, that a place is known to unless the person chooses otherwise."""
_METERS_OF_DEGREE = 111_320.0  # of latitude, rounded up: an uncertainty must not be too small


class Location(NamedTuple):
    """A point in WGS84, and how far the true place may be from it.

    Args:
        latitude: Degrees north.
        longitude: Degrees east.
        uncertainty: Meters; ``None`` if it is not known.
    """

    latitude: float
    longitude: float
    uncertainty: float | None = None

    def check(self) -> "Location":
        """Return the location if it can be.

        Raises:
            ValueError: If a number is out of bounds; the message names it.
        """
        require_number("latitude", self.latitude, low=-90.0, high=90.0)
        require_number("longitude", self.longitude, low=-180.0, high=180.0)
        if self.uncertainty is not None:
            require_number("uncertainty", self.uncertainty, above=0.0)
        return self

    def coarse(self, degrees: float = COARSE) -> "Location":
        """Return the middle of the cell that the location is in; the uncertainty covers all of the cell.

        Nothing finer can be found out from it: all places of a cell give the same numbers, if their
        uncertainty is the same.

        Example:
            >>> Location(43.6117, 3.8767).coarse()
            Location(latitude=43.65, longitude=3.85, uncertainty=6873.0)
        """
        latitude, longitude = _middle(self.latitude, degrees, 90.0), _middle(self.longitude, degrees, 180.0)
        widest = max(cos(radians(latitude + side * degrees / 2)) for side in (-1, 0, 1))
        corner = _METERS_OF_DEGREE * degrees / 2 * hypot(1.0, widest)
        return Location(latitude, longitude, float(floor(corner + (self.uncertainty or 0.0)) + 1))


def _middle(value: float, degrees: float, most: float) -> float:
    cell = min(floor(value / degrees + 1e-9), ceil(most / degrees - 1e-9) - 1)  # the last cell has the edge
    low, high = (
        max(cell * degrees, -most),
        min((cell + 1) * degrees, most),
    )  # those at the ends may be smaller
    return round((low + high) / 2, 6)
