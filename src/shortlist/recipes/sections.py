"""The sections of a recipe. Each checks itself and names unknown keys."""

import inspect
import math
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from shortlist._text import flatten
from shortlist.recipes.transforms import TRANSFORMS

Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Beta = Annotated[float, Field(ge=0, lt=1)]
MetricName = Annotated[str, Field(pattern=r"^[\w\-]+$")]
OwnName = Annotated[str, Field(pattern=r"^[^:]+:[^:]+$")]  # package.module:function
Count = Annotated[int, Field(ge=1, strict=True)]  # true is no count


def refuse_yes_for_a_number(cls: type[BaseModel], value: Any, info: ValidationInfo) -> Any:
    """Refuse ``true`` where a number is expected, since it would count as 1."""
    if isinstance(value, bool) and not _takes_bool(cls.model_fields[str(info.field_name)].annotation):
        raise ValueError(f"must not be yes or no, got {value}")
    return value


def _takes_bool(annotation: Any) -> bool:
    if annotation in (bool, Any, object):
        return True
    return any(part is True or part is False or _takes_bool(part) for part in get_args(annotation))


class Section(BaseModel):
    """A section of typed options; an unknown option is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    _numbers = field_validator("*", mode="before")(refuse_yes_for_a_number)


class NamedSection(BaseModel):
    """A section with a name and options, which are checked against the signature of what has that name."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    name: str

    _numbers = field_validator("*", mode="before")(refuse_yes_for_a_number)

    @model_validator(mode="after")
    def _check_finite(self) -> "NamedSection":
        """Refuse options that JSON does not have: a run's recipe would hold nothing in their place."""
        for option, value in flatten(self.options).items():
            values = value if isinstance(value, list | tuple) else [value]
            if any(isinstance(one, float) and not math.isfinite(one) for one in values):
                raise ValueError(f"{option} must be finite, got {value}")
        return self

    @property
    def options(self) -> dict[str, Any]:
        """All options without the name."""
        return dict(self.__pydantic_extra__ or {})


class TransformSection(NamedSection):
    """A transform of images by its name in ``TRANSFORMS``, with its options."""

    @model_validator(mode="after")
    def _check(self) -> "TransformSection":
        if self.name not in TRANSFORMS:
            raise ValueError(f"must be one of {', '.join(TRANSFORMS)}, got {self.name!r}")
        names = list(inspect.signature(TRANSFORMS[self.name]).parameters)
        if unknown := [option for option in self.options if option not in names]:
            raise ValueError(f"options of {self.name} must be among {', '.join(names)}, got {unknown[0]!r}")
        return self


class DataSection(NamedSection):
    """A data set by its name in ``DATASETS``, with its options (``root``, ``seed``, ...), and changes to it.

    ``label_noise`` redraws that share of the training labels within their parents of ``noise_level``, or with
    ``noise_blocks`` within blocks of so many classes in alphabetical order;
    ``max_per_class`` keeps that many training rows of each class. Both are drawn with the run's seed.
    ``train_transform`` and ``eval_transform`` are for image files. ``prepared`` keeps their pixels on the
    disk, at the size that is needed (:meth:`~shortlist.datasets.images.ImageFiles.keep_prepared`).
    ``val_is_test`` takes the test split for validation too, as where an experiment was published without one:
    then nothing should be chosen by it.
    """

    name: str = "glyphs"
    label_noise: Fraction = 0.0
    noise_level: str = "genus"
    noise_blocks: Count | None = None
    max_per_class: Count | None = None
    train_transform: TransformSection | None = None
    eval_transform: TransformSection | None = None
    val_is_test: bool = False
    prepared: bool = False


class ModelSection(NamedSection):
    """A network: a name in ``MODELS``, ``timm:NAME``, ``torchvision:NAME`` or ``package.module:function``.

    ``weights_file`` is a ``.safetensors`` file or a torch checkpoint to start from; a classifier for other
    classes is left out. ``small_stem`` is for ResNets on images of 32 x 32: a first convolution of 3 x 3 with
    stride 1.
    """

    name: str = "small_cnn"
    weights_file: str | None = None
    small_stem: bool = False


class HeadSection(Section):
    """The head that replaces the classifier; ``auto`` takes the one that the loss needs."""

    name: Literal["auto", "linear", "cosine", "two_head", "label_set"] = "auto"
    classifier: str | None = None  # dotted name of the layer to replace; found if left out
    bias: bool = True
    scale: Positive = 1.0
    learn_scale: bool = False
    size_weight: Annotated[float, Field(ge=0)] = 1.0  # of the loss of the number of labels, if several


class OptimizerSection(Section):
    """The optimizer: SGD, Adam or AdamW."""

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: Positive = 0.1
    momentum: Fraction = 0.9
    nesterov: bool = True
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    clip_norm: Positive | None = None
    estimates_factor: Positive = 10.0  # of ROLE's table


class ScheduleSection(Section):
    """The factor of the learning rate over time; all lengths are in ``unit``."""

    name: Literal["constant", "milestones", "cosine"] = "cosine"
    unit: Literal["epoch", "step"] = "epoch"
    milestones: list[Count] = []
    factor: Positive = 0.1
    warm_up: Annotated[float, Field(ge=0)] = 0.0

    @model_validator(mode="after")
    def _check(self) -> "ScheduleSection":
        if bool(self.milestones) != (self.name == "milestones"):
            there = f"are {self.milestones}" if self.milestones else "are none"
            raise ValueError(f"milestones go with the name milestones: they {there}, the name is {self.name}")
        return self


class SamplerSection(Section):
    """The sampler, which decides how training rows are drawn."""

    name: Literal["shuffle", "class_balanced"] = "shuffle"


class ReweightingSection(Section):
    """Class-balanced weights that start at an epoch."""

    after: Annotated[int, Field(ge=0)]
    beta: Beta = 0.9999


class AnnealSection(Section):
    """An option of the loss that goes from the loss's own number to ``end`` over the first epochs."""

    end: Positive
    over: Count | None = None  # epochs; all if left out
    curve: Literal["geometric", "linear"] = "geometric"


class SecondStageSection(Section):
    """The second stage: train the classifier again, on frozen features and class-balanced batches."""

    name: Literal["retrain_classifier", "weight_scaling"]
    epochs: Count = 10
    lr: Positive = 0.1


SelectionMetric = Annotated[str, Field(pattern=r"^((macro_)?(top[1-9]\d*|average\d+(\.\d+)?)|loss|last)$")]


class SelectionSection(Section):
    """The metric that chooses the best epoch, and when to stop waiting for a better one.

    Metrics: ``top5``, ``macro_top5``, ``average5``, ``macro_average5`` (any number for 5) on the validation
    rows, ``loss`` (of the training), ``last`` (the last epoch). Of epochs without validation none is chosen,
    and they do not count as waiting.
    """

    metric: SelectionMetric = "top1"
    keep: list[SelectionMetric] = []  # whose best epochs are kept too, for other runs to begin with
    patience: Count | None = None

    @model_validator(mode="after")
    def _check(self) -> "SelectionSection":
        if self.metric == "last" and self.patience is not None:
            raise ValueError(f"patience must be left out where the last epoch is kept, got {self.patience}")
        return self

    @property
    def metrics(self) -> list[str]:
        """All metrics by which an epoch is kept, that of the model first."""
        return list(dict.fromkeys([self.metric, *self.keep]))


class AdjustSection(Section):
    """The adjustment of the network's scores before sets are made; see ``docs/explanations/scores.md``.

    Left out, it is what the loss asks for: nothing for a loss whose scores are log-posteriors; a temperature
    and the exponent of the class priors, fitted together on the validation rows, for any other; and a shift
    for each class for a loss that leaves each class a level of its own.
    """

    # class weights are divided by this power of their norms, before all else; "fit" on the validation rows
    weight_normalization: float | Literal["fit"] | None = None
    # what is raised to that power: the norms of the class weights, or the class priors
    normalized_by: Literal["norm", "prior"] = "norm"
    # "scaled": the offset is part of the class's vector that is normalized; "kept": it stays as it is
    normalized_offset: Literal["scaled", "kept"] = "scaled"
    # divides the scores; "fit" on the validation rows; a number fits nothing
    temperature: Positive | Literal["fit"] | None = None
    # whether a shift for each class is fitted with temperature and prior exponent; left out: as the loss asks
    class_shifts: bool | None = None
    # the power of the class priors that is divided out: 0 none, 1 all, for balanced classes
    tau: float | Literal["fit", "cross_fit"] | None = None
    # of a two-head model, the head to predict from; "choose" takes the better one on the validation rows
    predict_from: Literal["set", "proposal", "choose"] = "set"


class CalibrationSection(Section):
    """The rows that calibrate the predictors: all validation rows, or some that serve for nothing else.

    With ``shared`` rows, those that choose the epoch and fit the score map also calibrate, and the promises
    of the predictors are not exact. With ``separate`` rows, a random share of the validation rows only
    calibrates, and the others choose and fit.
    """

    rows: Literal["shared", "separate"] = "shared"
    fraction: Annotated[float, Field(gt=0, lt=1)] = 0.5  # of the validation rows that only calibrate

    @model_validator(mode="after")
    def _check(self) -> "CalibrationSection":
        if self.rows == "shared" and "fraction" in self.model_fields_set and self.fraction != 0.5:
            raise ValueError(f"fraction goes with rows: separate, got rows: {self.rows}")
        return self


class PredictorSection(NamedSection):
    """A predictor by its name in ``PREDICTORS``; ``macro: true`` gives it the class priors.

    ``coverage: auto`` of a conformal one leaves the coverage to the calibration rows.
    """

    macro: bool = False
    # for a predictor of a taxonomy: levels of the class table that make it; left out: all of them
    levels: list[str] | None = None

    @property
    def chooses_coverage(self) -> bool:
        """Whether the calibration rows choose the coverage."""
        return self.name == "conformal" and super().options.get("coverage") == "auto"

    @property
    def options(self) -> dict[str, Any]:
        """All options without the name, and without a coverage that is not yet chosen."""
        options = super().options
        return {key: options[key] for key in options if key != "coverage" or not self.chooses_coverage}


class NoveltySection(Section):
    """The detector of strangers: its strangeness, what it promises, and about what.

    ``probability`` and ``energy`` need the scores alone; ``distance`` is that of the features to the nearest
    class mean of the training rows. See ``docs/guides/novelty.md``.
    """

    strangeness: Literal["probability", "energy", "distance"] = "probability"
    rule: Literal["pooled", "macro", "class"] = "pooled"
    level: Annotated[float, Field(gt=0, lt=1)] = 0.05
    delta: Annotated[float | None, Field(gt=0, lt=1)] = None
    classes: Literal["present", "all"] = "present"

    @model_validator(mode="after")
    def _check(self) -> "NoveltySection":
        if self.delta is not None and self.rule != "pooled":
            raise ValueError(f"delta goes with rule: pooled, got rule: {self.rule}")
        return self


class EvaluationSection(Section):
    """The metrics of the results: the K of top-K accuracies, and the groups of classes by training rows.

    ``count_bins`` takes the place of the groups few, medium and many: the largest number of training rows of
    each group but the last, so that ``[10, 50]`` gives ``top1.up_to_10``, ``top1.up_to_50`` and
    ``top1.over_50``.
    """

    ks: Annotated[list[Count], Field(min_length=1)] = [1, 3, 5, 10]
    # by name, a function of somebody's own: of metrics more is better, of costs less
    metrics: dict[MetricName, OwnName] = {}
    costs: dict[MetricName, OwnName] = {}
    few_below: Annotated[int, Field(ge=0, strict=True)] = 20
    many_above: Annotated[int, Field(ge=0, strict=True)] = 100
    count_bins: list[Count] = []

    @model_validator(mode="after")
    def _check(self) -> "EvaluationSection":
        if self.few_below > self.many_above + 1:
            top = self.many_above + 1
            raise ValueError(f"few_below must be at most many_above + 1 = {top}, got {self.few_below}")
        if sorted(set(self.count_bins)) != self.count_bins:
            raise ValueError(f"count_bins must rise, got {self.count_bins}")
        return self

    @property
    def options(self) -> dict[str, Any]:
        """Options of :func:`shortlist.metrics.evaluate`."""
        return self.model_dump(exclude={"metrics", "costs"})

    @property
    def own_names(self) -> dict[str, str]:
        """The functions of somebody's own, by the first words of the names of their metrics."""
        metrics = {f"metric.{name}": function for name, function in self.metrics.items()}
        return metrics | {f"cost.{name}": function for name, function in self.costs.items()}

    @property
    def groups(self) -> dict[str, Any]:
        """Options of ``ClassTable.groups``."""
        return self.model_dump(include={"few_below", "many_above", "count_bins"})

    @property
    def group_words(self) -> str:
        """What the groups are, in words; the names of bins say it themselves."""
        by_name = f"few: below {self.few_below}, many: above {self.many_above}"
        return "by their number" if self.count_bins else by_name
