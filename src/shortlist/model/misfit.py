"""Say how saved weights and the network that should take them differ."""

from collections.abc import Mapping

from torch import Tensor, nn


def misfit(network: nn.Module, weights: Mapping[str, Tensor]) -> str | None:
    """Name one parameter that differs between a network and saved weights; ``None`` if none does.

    Example:
        >>> print(misfit(nn.Linear(4, 2), nn.Linear(4, 3).state_dict()))
        weight has the shape (2, 4) in the network, and (3, 4) in the file
    """
    of_network = {key: value for key, value in network.state_dict().items() if isinstance(value, Tensor)}
    for key, value in of_network.items():
        if key in weights and weights[key].shape != value.shape:
            shapes = tuple(value.shape), tuple(weights[key].shape)
            return f"{key} has the shape {shapes[0]} in the network, and {shapes[1]} in the file"
    for these, others, where, elsewhere in (
        (of_network, weights, "network", "file"),
        (weights, of_network, "file", "network"),
    ):
        for key in these:
            if key not in others:
                return f"the {where} has {key} of shape {tuple(these[key].shape)}, the {elsewhere} does not"
    return None
