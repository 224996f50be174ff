"""A picture of the glyph set: groups of look-alikes, and the Lorenz curve of its class sizes.

Writes docs/glyphs.png, or the file that is named.
"""

import argparse
import io

from shortlist.class_table import ClassTable
from shortlist.curation.contact_sheet import contact_sheet
from shortlist.curation.describe import lorenz_curve
from shortlist.datasets.glyphs.dataset import GlyphSplits, glyphs

ROWS = {  # of each group, some that are told apart with trouble or not at all
    "O of four scripts, accents": "OΟОꓳÖỌØ",
    "H of five scripts, accents": "HΗНᕼꓧĤἭ",
    "I and l": "IΙІlӏꓲḷ",
    "A of four scripts, accents": "AΑАꓮÄÅȦ",
    "eta with Greek accents": "ηἠἡἢἤᾐῄ",
    "P, with accents and strokes": "PΡРꓑṔṖⱣ",
    "Arabic jeem, hah, khah": "جحخڃڄ",
}


def draw(data: GlyphSplits, path: str) -> None:
    """Sheet on the left, curve on the right."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot
    from PIL import Image

    table = data.class_table
    row_of = {f"U+{ord(character):04X}": row for row, text in ROWS.items() for character in text}
    shown = ClassTable(table.names, table.ids, parents={"row": [row_of.get(code, "") for code in table.ids]})
    sheet = contact_sheet(data.test, shown, level="row", groups=list(ROWS), num_images=3)
    num_groups = len(set(table.parents["genus"]))
    counts = table.class_counts
    classes, images = lorenz_curve(counts)
    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(12, 4.8), width_ratios=(2.1, 1), layout="constrained"
    )
    left.imshow(sheet, interpolation="lanczos")
    left.axis("off")
    left.set_title(f"from {len(ROWS)} of {num_groups} groups of look-alikes", fontsize=10)
    right.plot(100 * classes, 100 * images, color="black")
    right.plot([0, 100], [0, 100], color="0.7", linewidth=1)
    share = float(images[int(0.8 * len(counts))])
    right.plot([80, 80, 0], [0, 100 * share, 100 * share], color="tab:red", linestyle=":")
    right.annotate(f"the rarest 80 % hold {100 * share:.0f} %", (3, 100 * share + 2), color="tab:red")
    right.set(xlabel="classes, rarest first (%)", ylabel="training images (%)", xlim=(0, 100), ylim=(0, 100))
    right.set_title(f"{len(counts)} classes, {int(counts.sum()):,} training images", fontsize=10)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=105, format="png")
    Image.open(buffer).convert("RGB").quantize(64).save(path, optimize=True)  # 64 colors: a small file


def main() -> None:
    """Build or load the set and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", nargs="?", default="docs/glyphs.png")
    draw(glyphs(), parser.parse_args().path)


if __name__ == "__main__":
    main()
