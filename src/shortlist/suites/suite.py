"""The suite: methods, their grids and seeds on varied data, in one typed object and one YAML file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from shortlist._store.yaml import read_mapping
from shortlist.metrics import default_metrics
from shortlist.recipes import load_variant

COLUMNS = (
    "suite",
    "method",
    "grid_point",
    "seed",
    "run",
    "recipe_hash",
    "recipe",
    "tuned_by",
    "val",
    "chosen",
)
"""Columns of a suite's table of results, beside those of its axes and metrics."""

Seed = Annotated[int, Field(ge=0)]
Name = Annotated[str, Field(pattern=r"^[\w\-][\w.\-]*$")]  # also names of folders
Grid = dict[str, Annotated[list[Any], Field(min_length=1)]]


class SuiteError(ValueError):
    """Raised if a suite cannot be run; the message names the key and the fault."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Tuning(_Part):
    """The choice of a grid point: the best mean over ``seeds`` of a metric on the validation rows."""

    metric: str = "top1.micro"
    seeds: Annotated[list[Seed], Field(min_length=1)] = [0]


class Method(_Part):
    """A method to compare: changes to the base recipe, and a grid of options from which the best is chosen.

    With ``from`` nothing is trained: the scores of another method's chosen runs are taken and only ``adjust``
    and ``predictors`` may differ. With ``posterior`` nothing is trained either: the scores are the exact
    log-probabilities of synthetic data, the limit of all methods.
    """

    about: str = ""
    overrides: list[str] = []
    grid: Grid = {}
    metric: str | None = Field(None, description="instead of the suite's, where its aim is another")
    source: str | None = Field(None, alias="from")
    posterior: bool = False

    @property
    def trains(self) -> bool:
        """Whether the method trains its own networks."""
        return self.source is None and not self.posterior


class Suite(_Part):
    """Methods, grids and seeds, on each combination of axes' values; see ``docs/guides/suites.md``."""

    name: Name
    about: str = ""
    base: dict[str, Any] | str = Field(default_factory=dict, description="a recipe, or a file with one")
    tune: Tuning = Tuning()
    seeds: Annotated[list[Seed], Field(min_length=1)] = [0, 1, 2]
    grid: Grid = Field(default_factory=dict, description="of every method that trains, before its own")
    vary: dict[Name, list[Any] | dict[Name, list[str]]] = Field(default_factory=dict)
    methods: Annotated[dict[Name, Method], Field(min_length=1)]
    overrides: list[str] = Field(default_factory=list, description="of every run, after all others")
    metrics: list[str] = Field(default_factory=default_metrics)
    baseline: Name | None = Field(None, description="the method that every other is tested against")

    @model_validator(mode="after")
    def _check(self) -> "Suite":
        for seeds, name in ((self.seeds, "seeds"), (self.tune.seeds, "tune.seeds")):
            if len(set(seeds)) < len(seeds):
                raise ValueError(f"{name} must all differ, got {seeds}")
        for name, method in self.methods.items():
            _check_source(name, method, self.methods)
        if self.baseline is not None and self.baseline not in self.methods:
            raise ValueError(
                f"baseline must be one of the methods ({', '.join(self.methods)}), got {self.baseline!r}"
            )
        for axis, values in self.vary.items():
            if axis in COLUMNS:
                raise ValueError(
                    f"vary.{axis} must be called otherwise: the results have a column of that name"
                )
            if not values:
                raise ValueError(f"vary.{axis} must have at least one value, got none")
        return self


def _check_source(name: str, method: Method, methods: Mapping[str, Method]) -> None:
    if method.source is None:
        return
    if method.posterior:
        raise ValueError(f"methods.{name} must have either from or posterior, got both")
    if method.source in methods and methods[method.source].posterior:
        raise ValueError(
            f"methods.{name}.from must be a method that trains, got {method.source!r}: give {name} posterior "
            f"and overrides of its own"
        )
    if method.source not in methods or not methods[method.source].trains:
        trained = [other for other, each_method in methods.items() if each_method.trains]
        raise ValueError(
            f"methods.{name}.from must be a method with scores of its own ({', '.join(trained)}), "
            f"got {method.source!r}"
        )


def load_suite(path: str | Path, overrides: Sequence[str] = ()) -> Suite:
    """Read a suite from YAML; the base recipe may be in another file beside it.

    Args:
        path: Path of the suite. A method may name a ``variant`` of a base recipe in a file (see
            :func:`~shortlist.recipes.recipe.load_variant`), whose overrides then come first.
        overrides: Changes to every run, such as ``"data.root=data"``.

    Raises:
        SuiteError: With one line for each fault.
    """
    path = Path(path)
    try:
        content = dict(read_mapping(path))
        if "methods" in content:
            content["methods"] = _with_variants(path, content)
        if isinstance(content.get("base"), str):
            content["base"] = read_mapping(path.parent / content["base"])
        content["overrides"] = [*content.get("overrides", ()), *overrides]
    except ValueError as error:
        raise SuiteError(str(error)) from error
    try:
        return Suite.model_validate(content)
    except ValidationError as error:
        lines = (_line(fault) for fault in error.errors())
        raise SuiteError(f"{path}: " + "\n".join(lines)) from error


def _with_variants(path: Path, content: Mapping[str, Any]) -> Any:
    """Return the methods with the overrides of the variants that they name."""
    methods, base = content.get("methods"), content.get("base")
    if not isinstance(methods, Mapping):
        return methods  # a fault that is named later
    with_variants = {}
    for name, method in methods.items():
        if isinstance(method, Mapping) and "variant" in method:
            if not isinstance(base, str):
                raise SuiteError(f"{path}: methods.{name}.variant needs a base that is a file, got {base!r}")
            first = load_variant(path.parent / base, str(method["variant"]))
            rest = {key: value for key, value in method.items() if key != "variant"}
            method = rest | {"overrides": [*first, *(rest.get("overrides") or ())]}
        with_variants[name] = method
    return with_variants


def _line(fault: Any) -> str:
    key = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        return f"{key}: unknown key"
    if fault["type"] == "value_error":
        return fault["msg"].removeprefix("Value error, ")
    return f"{key}: {fault['msg']}" + ("" if fault["type"] == "missing" else f", got {fault['input']!r}")
