"""Weights of 16 and 8 bits: rounded as they say, and kept small in a file that gives the same."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from shortlist.model import round_weights
from shortlist.model.weights import keep_small

onnx = pytest.importorskip("onnx")


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 5)).eval()


def test_rounded_weights_are_the_nearest_of_their_kind():
    plain, half, small = (round_weights(network(), kind) for kind in ("float32", "float16", "int8"))
    for before, now in zip(network().parameters(), plain.parameters(), strict=True):
        assert torch.equal(before, now)
    for before, now in zip(network().parameters(), half.parameters(), strict=True):
        assert torch.equal(now, before.half().float() if before.ndim > 1 else before)
    for before, now in zip(network().parameters(), small.parameters(), strict=True):
        if before.ndim == 1:
            assert torch.equal(before, now)
            continue
        for row, rounded in zip(before.flatten(1).double(), now.flatten(1).double(), strict=True):
            step = row.abs().max() / 127
            assert (row - rounded).abs().max() <= 0.5 * step * 1.001
            assert rounded.unique().numel() <= 255
            torch.testing.assert_close(rounded / step, (rounded / step).round(), rtol=0, atol=1e-4)


def test_a_layer_without_weights_stays_zero():
    layer = nn.Linear(3, 2)
    nn.init.zeros_(layer.weight)
    assert torch.equal(round_weights(layer, "int8").get_parameter("weight"), torch.zeros(2, 3))


def graph_of(layer: nn.Module, transposed: bool) -> Any:
    """A graph of one product, whose weights an exporter may have turned."""
    from onnx import helper, numpy_helper

    weight = layer.get_parameter("weight").detach().numpy()
    stored = np.ascontiguousarray(weight.T) if transposed else weight
    node = (
        helper.make_node("MatMul", ["x", "w"], ["y"])
        if transposed
        else helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)
    )
    x, y = (helper.make_tensor_value_info(name, 1, ["n", size]) for name, size in (("x", 40), ("y", 6)))
    graph = helper.make_graph([node], "one", [x], [y], [numpy_helper.from_array(stored, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
def test_a_file_keeps_rounded_weights_small_and_gives_the_same(kind, transposed):
    onnxruntime = pytest.importorskip("onnxruntime")
    torch.manual_seed(1)
    layer = round_weights(nn.Linear(40, 6, bias=False), kind)
    model = graph_of(layer, transposed)
    keep_small(model, kind)
    onnx.checker.check_model(model, full_check=True)
    stored = {each.name: onnx.numpy_helper.to_array(each).dtype for each in model.graph.initializer}
    wanted = {"w"} if kind == "float32" else {"w/float16"} if kind == "float16" else {"w/int8", "w/scale"}
    assert set(stored) == wanted and (kind == "float32" or stored[f"w/{kind}"] == np.dtype(kind))
    inputs = torch.randn(7, 40)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    [got] = session.run(None, {"x": inputs.numpy()})
    torch.testing.assert_close(torch.from_numpy(got), layer(inputs).detach(), rtol=1e-4, atol=1e-5)


def test_weights_that_were_not_rounded_stay_as_they_are():
    torch.manual_seed(1)
    model = graph_of(nn.Linear(40, 6, bias=False), False)
    before = model.SerializeToString()
    for kind in ("float16", "int8"):
        keep_small(model, kind)
    assert [each.name for each in model.graph.initializer] == ["w"]
    assert len(model.SerializeToString()) == len(before)
