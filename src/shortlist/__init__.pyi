__version__: str

from . import (
    losses as losses,
    metrics as metrics,
    models as models,
    ops as ops,
    predictors as predictors,
    priors as priors,
    scores as scores,
)
from ._named_code import allow_code as allow_code
from .class_table import ClassTable as ClassTable
from .model import Model as Model
from .place import Place as Place
from .preprocessing import Preprocessing as Preprocessing
from .recipes import Recipe as Recipe
from .runs import Run as Run
from .taxonomy import Taxonomy as Taxonomy
from .training import train as train
