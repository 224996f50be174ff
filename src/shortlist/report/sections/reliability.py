"""How often the first guess is right, against how sure it is."""

from shortlist._text import format_percent
from shortlist.compare import pool_reliability
from shortlist.report.drawings import Series, describe, line_plot
from shortlist.report.parts import Drawing, Table
from shortlist.report.views import MethodView


def measure_reliability(view: MethodView) -> Drawing:
    """Draw accuracy of the first guess by its confidence, over the rows of all runs."""
    pooled = pool_reliability([run.results.scores.reliability for run in view.method.runs])
    bins, total = len(pooled.rows), sum(pooled.rows) or 1
    middles = [(i + 0.5) / bins for i in range(bins)]
    xs = [c if c is not None else m for c, m in zip(pooled.confidence, middles, strict=True)]
    radii = [1.5 + 9 * (number / total) ** 0.5 for number in pooled.rows]
    line = Series("first guess", xs, pooled.accuracy, 0, radii)
    panel = line_plot(
        [line],
        x_label="mean confidence, percent",
        y_label="percent right",
        description=describe("Accuracy of the first guess by confidence", [line]),
        y_range=(0.0, 1.0),
        diagonal=True,
    )
    rows = [
        [
            f"{format_percent(i / bins, 0)}–{format_percent((i + 1) / bins, 0)}",
            number,
            format_percent(pooled.confidence[i]),
            format_percent(pooled.accuracy[i]),
        ]
        for i, number in enumerate(pooled.rows)
        if number
    ]
    error = format_percent(view.method.metrics["calibration_error"].value)
    return Drawing(
        f"reliability-{view.name}",
        "Reliability",
        f"Expected calibration error {error} %. Dashed: as often right as it is sure. "
        "Larger marks stand for more rows.",
        [panel],
        tables=[Table("By confidence", ["confidence, %", "rows", "mean confidence, %", "right, %"], rows)],
        is_half=True,
    )
