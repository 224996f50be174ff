"""The papers' own figures, each from numbers that are measured here: see :data:`FIGURES`.

A figure is a module with a function that measures numbers and one that draws them. Needs
``pip install 'shortlist[train,report]'``.
"""

from importlib import import_module

from shortlist.papers.figures._frame import Numbers, PaperFigure, write_figure

__all__ = ["FIGURES", "Numbers", "PaperFigure", "load_figure", "write_figure"]

FIGURES: dict[str, str] = {
    "level_sets": "each loss over all scores of three classes with a given sum, for k = 1 and 2",
    "noise_landscape": "what the amount of noise and the number of draws make of the noised top-k loss",
    "epoch_time": "what an epoch of training takes beyond cross-entropy, against k, for each loss",
    "nonzero_gradients": "how many scores get a gradient, against the amount of noise",
    "calibration_map": "for which noise and k the noised top-k loss ranks the k likeliest classes first",
    "splitter_network": "the splitter selection network, with the least rank that can arrive on each wire",
    "lorenz": "how unevenly the training images are spread over the classes",
    "class_size": "accuracy of runs by the number of training images of a class",
    "topk_against_average_k": "coverage of runs with K classes for every row, and with K on average",
    "error_against_tau": "balanced error of runs after adjustment by tau, and by normalized weights",
    "two_gaussians": "separators and balanced errors of an affine classifier with a rare class",
    "two_gaussians_tau": "balanced error of an affine classifier with a rare class, after correction by tau",
    "weight_norms": "norms of the class weights of runs by frequency of the class, as with two optimizers",
    "binary_links": "best scores and least risk of the margin losses for two classes, by probability",
    "error_by_group": "errors of runs in groups of classes: many, medium and few images, or ten groups",
    "set_sizes": "how many classes the sets of runs have, methods side by side and by group",
    "scatter": "one metric of runs against another, as of several networks",
    "sweep": "metrics of runs against one option of their recipes, such as steepness or candidates",
    "ambiguity": "the closest images of two classes and the farthest images of one class",
    "average_k_sensitivity": "coverage of runs with the average-K loss by alpha and by batch size",
}
"""Name of each figure and what it shows; the module of the same name has ``measure`` and ``draw``."""


def load_figure(name: str) -> PaperFigure:
    """Import the figure of that name.

    Example:
        >>> load_figure("splitter_network").options()
        {'n': 16, 'k': 5}
    """
    if name not in FIGURES:
        raise ValueError(f"name must be one of {', '.join(FIGURES)}, got {name!r}")
    module = import_module(f"shortlist.papers.figures.{name}")
    return PaperFigure(module.measure, module.draw)
