"""The icons of an app, drawn in the sizes that phones ask for."""

from pathlib import Path
from typing import Any

_SIZES = {"icon-180.png": 180, "icon-192.png": 192, "icon-512.png": 512}
_MASKABLE = "icon-maskable.png"  # which a phone cuts to its own shape
_GROUND, _INK = "#14786a", "#ffffff"
_LINES = ((10, 24), (16, 19), (22, 14))  # heights and right ends, of 32; as in serve/static/icon.svg
_SMOOTH = 4


def draw_icons(folder: Path) -> None:
    """Write the icons as PNG files."""
    for name, size in _SIZES.items():
        _drawn(size, radius=7 / 32, inset=0.0).save(folder / name)
    _drawn(512, radius=0.0, inset=0.15).save(folder / _MASKABLE)


def icon_entries() -> list[dict[str, str]]:
    """Return the icons as a manifest lists them."""
    plain = [
        {"src": name, "sizes": f"{size}x{size}", "type": "image/png", "purpose": "any"}
        for name, size in _SIZES.items()
    ]
    return [*plain, {"src": _MASKABLE, "sizes": "512x512", "type": "image/png", "purpose": "maskable"}]


def _drawn(size: int, *, radius: float, inset: float) -> Any:
    """Draw three lines of a list, larger than wanted, and make the picture smaller."""
    from PIL import Image, ImageDraw

    wide = _SMOOTH * size
    picture = Image.new("RGBA", (wide, wide), _GROUND if radius == 0 else (0, 0, 0, 0))
    pen = ImageDraw.Draw(picture)
    pen.rounded_rectangle((0, 0, wide - 1, wide - 1), radius=radius * wide, fill=_GROUND)

    def at(place: float) -> float:
        return wide * (inset + (1 - 2 * inset) * place / 32)

    half = (at(3.2) - at(0)) / 2
    for height, right in _LINES:
        box = (at(8) - half, at(height) - half, at(right) + half, at(height) + half)
        pen.rounded_rectangle(box, radius=half, fill=_INK)
    return picture.resize((size, size), Image.Resampling.LANCZOS)
