"""Examples in docstrings assume ``import torch``."""

import pytest
import torch


@pytest.fixture(autouse=True)
def torch_in_examples(doctest_namespace):
    """Give every doctest the name ``torch``."""
    doctest_namespace["torch"] = torch
