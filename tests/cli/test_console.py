"""What the verbs print."""

import io
import re

import torch
from rich.console import Console

from shortlist.class_table import ClassTable
from shortlist.cli._console import metrics_table
from shortlist.metrics import evaluate
from shortlist.predictors import Conformal, TopK


def test_numbers_are_never_cut_in_a_narrow_window():
    generator = torch.Generator().manual_seed(0)
    scores = 2 * torch.randn(400, 30, generator=generator)
    target = torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)
    name = "a_predictor_with_a_long_name_of_its_own"
    predictors = {name: Conformal(coverage=0.9).calibrate(scores, target), "top5": TopK(5)}
    table = ClassTable(names=[str(i) for i in range(30)], counts=[10] * 10 + [50] * 10 + [500] * 10)
    results = evaluate(scores, target, predictors, table)
    shown = io.StringIO()
    Console(file=shown, width=80).print(metrics_table(results, "Test rows"))
    text = shown.getvalue()
    assert "…" not in text and max(map(len, text.splitlines())) <= 80
    coverage = results.sets[name].coverage
    line = next(line for line in text.splitlines() if "a_predictor" in line)
    numbers = [float(number) for number in re.findall(r"(?<!±)\b\d+\.\d+", line)]
    groups = [100 * group.value for group in coverage.groups.values()]
    wanted = [100 * coverage.micro.value, 100 * coverage.macro.value, *groups]
    assert numbers[:5] == [round(value, 1) for value in wanted]
