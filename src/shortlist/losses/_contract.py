"""What all losses share: forms of the target, class weights, ignored rows, reductions and modules."""

import functools
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Literal, ParamSpec, get_args, overload

import torch
from torch import Tensor, nn

from shortlist._bounds import check_choice
from shortlist._checks import check_class_vector, check_probabilities, check_scores, check_target, promote
from shortlist.losses._global_batch import num_processes, weighted_mean
from shortlist.losses._row_blocks import has_many_scores, rows_by_blocks

Reduction = Literal["mean", "sum", "none"]
# of losses of single positives: as the paper prints it, or as its authors' code has it
Normalization = Literal["paper", "original"]
Options = ParamSpec("Options")
# from scores and class indices (n,) to the loss of each row (n,), or from scores and probability targets
# (n, c) to the loss of each row for each class taken as the true one (n, c)
RowFunction = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class ScoreMeaning:
    r"""The meaning of the scores that a network learns with a loss, for :func:`shortlist.scores.map_of_loss`.

    Args:
        scale: Factor by which the loss multiplies the network's output (for cosine scores); 1 for most
            losses.
        without_priors: If the softmax of the scaled scores is a posterior: the power of the training priors
            that the loss leaves out of it, 0 for cross-entropy and 1 for a loss of the balanced error.
            ``None`` if the scores are no log-probabilities or contain unknown priors: then temperature and
            prior have to be fitted.
        with_weights: Whether class weights count as priors of this posterior, as in weighted cross-entropy.
        sigmoid: Whether the loss takes the sigmoid of each score for a probability of its own.
        free_levels: Whether the loss leaves the level of each class's scores free. If so, a shift for each
            class has to be fitted too.
    """

    scale: float = 1.0
    without_priors: float | None = None
    with_weights: bool = True
    sigmoid: bool = False
    free_levels: bool = False


def worth_sweeping(**values: Sequence[float]) -> Mapping[str, Sequence[float]]:
    """Return the options of a loss that are worth a search, with the values to try: its ``grid``."""
    return MappingProxyType(values)


def declared_meaning(kind: type[nn.Module], options: Mapping[str, Any], head: str = "set") -> ScoreMeaning:
    """Return what a class of losses declares about the scores of a head, with these options.

    A class that declares nothing gets the safe default: its scores are fitted.
    """
    if issubclass(kind, nn.CrossEntropyLoss):
        # label smoothing teaches probabilities that are mixed with equal ones: no posterior
        return ScoreMeaning() if options["label_smoothing"] else ScoreMeaning(without_priors=0.0)
    declare: Any = getattr(kind, "score_meaning", None)
    return ScoreMeaning() if declare is None else declare(options, head)


def log_weights(weight: Tensor) -> Tensor:
    """Return the logarithms of class weights (c,) in float64; a class of weight 0 gets 0."""
    double = weight.detach().double()
    return torch.where(double > 0, double, 1.0).log()


def check_reduction(reduction: str) -> None:
    """Require mean, sum or none."""
    check_choice("reduction", reduction, ("mean", "sum", "none"))


def reduce_rows(rows: Tensor, reduction: Reduction) -> Tensor:
    """Return the plain mean or sum over the rows, or the rows themselves."""
    return rows.mean() if reduction == "mean" else rows.sum() if reduction == "sum" else rows


def lead_over(true: Tensor, other: Tensor) -> Tensor:
    """Return by how much other scores lead the true one: +inf where -inf leaves the true class out.

    Where the other score is -inf too, the difference alone would be NaN.
    """
    return other.clamp_min(torch.finfo(other.dtype).min) - true


def class_loss(
    logits: Tensor,
    target: Tensor,
    row_loss: RowFunction,
    class_losses: RowFunction | None,
    weight: Tensor | None,
    ignore_index: int,
    reduction: Reduction,
    *,
    whole: bool = False,
) -> Tensor:
    """Apply a row loss with the meaning of ``torch.nn.functional.cross_entropy``.

    Very many scores go through the row loss some rows at a time.

    Args:
        logits: Scores (n, c), any floating type; half precision is computed in float32.
        target: Class indices (n,), or class probabilities (n, c).
        row_loss: Computes the loss (n,) of each row from scores and class indices (n,).
        class_losses: Computes, from scores and probability targets (n, c), the loss (n, c) of each row for
            each class as the true one. The result is their mean under the target; where the target is 0, the
            loss is not used. ``None`` if the loss does not accept probability targets.
        weight: Weight (c,) of each class.
        ignore_index: Rows with this target are ignored.
        reduction: Weighted mean over the rows (in training, over those of all processes), sum, or none.
        whole: Whether the row loss has something for each row of the batch, which must not be divided then.
    """
    check_scores(logits)
    check_reduction(reduction)
    if weight is not None:
        check_class_vector("weight", weight, num_classes=logits.shape[1])
    of_classes = isinstance(target, Tensor) and not target.is_floating_point()
    if of_classes and not whole and has_many_scores(logits):
        row_loss = functools.partial(rows_by_blocks, row_loss)
    else:
        logits = promote(logits)
    if isinstance(target, Tensor) and target.is_floating_point():
        return reduce_rows(_mean_over_classes(logits, target, class_losses, weight), reduction)
    # with several processes, another one may have rows that are ignored
    if check_target(target, logits, ignore_index=ignore_index) and weight is None and num_processes() == 1:
        return reduce_rows(row_loss(logits, target), reduction)
    ignored = target == ignore_index
    target = target.masked_fill(ignored, 0)
    rows = row_loss(logits, target)
    if weight is None:
        total = (~ignored).sum()
    else:
        row_weight = weight.to(rows.dtype)[target].masked_fill(ignored, 0)
        rows, total = rows * row_weight, row_weight.sum()
    rows = rows.masked_fill(ignored, 0)
    return weighted_mean(rows, total) if reduction == "mean" else reduce_rows(rows, reduction)


def _mean_over_classes(
    logits: Tensor, target: Tensor, class_losses: RowFunction | None, weight: Tensor | None
) -> Tensor:
    """Return the loss (n,) of each row: the mean over classes under its probability target (n, c)."""
    if class_losses is None:
        raise ValueError(
            f"target must be int64 class indices for this loss and these options, got {target.dtype}"
        )
    check_probabilities(target, logits)
    share = target.to(logits.dtype)
    if weight is not None:
        share = share * weight.to(logits.dtype)
    losses = class_losses(logits, share)
    # a class of no share has no part, even where its loss is infinite
    return torch.where(share > 0, share * losses, torch.zeros_like(losses)).sum(-1)


@overload
def options_of(
    function: Callable[Concatenate[Tensor, Tensor, Tensor, Options], Tensor],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, Options], None]]: ...
@overload
def options_of(
    function: Callable[Concatenate[Tensor, Tensor, Options], Tensor],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, Options], None]]: ...
def options_of(function: Callable[..., Tensor]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make the ``__init__`` of a :class:`ClassLoss` from its loss function.

    An option is then written once, as a keyword argument of the function. It still shows in the signature of
    the module, for ``help``, for recipes and for type checkers. The module keeps all options, with defaults.
    """
    options = [each for each in signature(function).parameters.values() if each.kind is each.KEYWORD_ONLY]
    itself = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    expected = Signature([itself, *options], return_annotation=None)

    def decorate(init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def keep_options(self: "ClassLoss", *given: Any, **named: Any) -> None:
            try:
                bound = expected.bind(self, *given, **named)
            except TypeError as error:
                raise TypeError(f"{init.__qualname__}() {error}") from None
            bound.apply_defaults()
            nn.Module.__init__(self)
            self._keep(self.prepared(bound.kwargs))

        vars(keep_options).update(__signature__=expected, function=function)
        return keep_options

    return decorate


class ClassLoss(nn.Module):
    """A loss function of scores (n, c) and target, with its options; see the function of the same name.

    Its ``__init__`` is made by :func:`options_of`. Options that can be tensors are buffers of their own,
    which later changes to the caller's do not reach; the others are plain attributes. A subclass completes
    them in :meth:`prepared`.

    ``needs`` names what a loss wants beyond scores and target, for a trainer to provide: ``"class_counts"``
    at construction, ``"cosine_scores"`` or ``"two_heads"`` from the model, ``"sample_ids"`` or
    ``"label_sets"`` with each batch. A ``"margin_table"`` no recipe can give. :meth:`score_meaning` says what
    the scores are that a network learns with it, which is ``meaning`` if no option changes it. ``check``
    refuses bad values of the options that are its parameters. ``grid`` has the options that are worth a
    search, with the values that ``shortlist suite init`` tries. All of these are facts of the class: nobody
    has to build a loss to ask for them.
    """

    function: ClassVar[Callable[..., Tensor]]
    check: ClassVar[Callable[..., object] | None] = None
    needs: frozenset[str] = frozenset()
    meaning: ClassVar[ScoreMeaning] = ScoreMeaning()
    takes_weight: ClassVar[bool] = True
    grid: ClassVar[Mapping[str, Sequence[float]]] = worth_sweeping()

    weight: Tensor | None

    if TYPE_CHECKING:  # options are attributes, whose types their function knows

        def __getattr__(self, name: str) -> Any: ...

    def __init_subclass__(cls) -> None:
        init = vars(cls).get("__init__")
        if init is not None:
            cls.function = staticmethod(init.function)

    @classmethod
    def prepared(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Return the options that the module keeps, from those it was made with."""
        return options

    def _keep(self, options: dict[str, Any]) -> None:
        check_reduction(options["reduction"])
        if options.get("weight") is not None:
            check_class_vector("weight", options["weight"])
        self.check_options(options)
        self._option_names = tuple(options)
        parameters = signature(self.function).parameters
        for name, value in options.items():
            if isinstance(value, Tensor) or (value is None and _takes_tensor(parameters[name].annotation)):
                self.register_buffer(name, None if value is None else value.detach().clone())
            else:
                setattr(self, name, _plain(value))

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuse bad values of options, by name; a recipe asks before there are any data."""
        if cls.check is not None:
            cls.check(**{name: options[name] for name in signature(cls.check).parameters if name in options})

    @property
    def options(self) -> dict[str, Any]:
        """The options of the function, by name."""
        return {name: getattr(self, name) for name in self._option_names}

    def forward(self, logits: Any, target: Tensor) -> Tensor:
        """Compute the loss of a batch; see the function of the same name."""
        return self.function(logits, target, **self.options)

    @classmethod
    def score_meaning(cls, options: Mapping[str, Any], head: str = "set") -> ScoreMeaning:
        """Return what the scores mean with these options: no log-probabilities, unless a loss says so."""
        return cls.meaning

    def extra_repr(self) -> str:
        """Show the options that are not tensors."""
        shown = {name: value for name, value in vars(self).items() if name in self._option_names}
        return ", ".join(f"{name}={value!r}" for name, value in sorted(shown.items()))


def _takes_tensor(annotation: Any) -> bool:
    """Tell whether a parameter can be a tensor, of any shape that jaxtyping may add."""
    return any(getattr(part, "array_type", part) is Tensor for part in (annotation, *get_args(annotation)))


def _plain(value: Any) -> Any:
    """Turn a NumPy scalar into a Python number."""
    foreign = isinstance(value, numbers.Real) and not isinstance(value, int | float)
    return float(value) if foreign else value
