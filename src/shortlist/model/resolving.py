"""What a choice comes to: the sets that a model can make, of which objects, and what is promised."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from shortlist._checks import check_count
from shortlist._recent import Recent
from shortlist.class_table import ClassTable
from shortlist.model.choice import Choice
from shortlist.model.populations import ChosenPopulation, Populations
from shortlist.predictors import AverageK, Conformal, Macro, SetPredictor, TopK, conformity, thresholds
from shortlist.promise import About, Promise, default_predictor

_CHOICES = 1000  # choices whose check and promise are remembered
_AT_PLACES = 64  # the same for choices with a place, which clients choose and whose populations are large


class Resolved(NamedTuple):
    """A choice with nothing left open.

    Attributes:
        choice: The choice.
        maker: The same, with the predictor in other words where the calibration rows make its sets.
        promise: What is promised about its lists.
        chosen: Population of its objects; ``None`` if the model kept no such rows.
    """

    choice: Choice
    maker: Choice
    promise: Promise
    chosen: ChosenPopulation | None


class Resolver:
    """Checks choices, and finds their promises and populations.

    Args:
        classes: Table of the c classes.
        predictors: Calibrated predictors by name.
        promises: Promise of each predictor.
        populations: Populations of the calibration rows.
        knows_priors: Whether it is known which priors the scores contain.
    """

    def __init__(
        self,
        classes: ClassTable,
        predictors: Mapping[str, SetPredictor],
        promises: Mapping[str, Promise],
        populations: Populations,
        *,
        knows_priors: bool,
    ) -> None:
        self._classes, self._predictors, self._promises = classes, predictors, promises
        self._populations, self._knows_priors = populations, knows_priors
        self._resolved: Recent[Resolved] = Recent(_CHOICES)
        self._at_places: Recent[Resolved] = Recent(_AT_PLACES)

    def __call__(self, choice: Choice) -> Resolved:
        """Return what a choice comes to.

        Raises:
            ValueError: If this model cannot make such sets; the message names the argument.
        """
        memory = self._resolved if choice.place is None else self._at_places
        return memory.get(choice, lambda: self._made(choice))

    def _made(self, choice: Choice) -> Resolved:
        checked = self._completed(choice)
        self._check_objects(checked)
        maker = self.in_other_words(checked)
        self._check_maker(maker)
        chosen = self._chosen(maker)
        self._check_sizes(maker, chosen)
        if chosen is not None and maker.place is not None:
            chosen.population.prepare()  # here and not with the first list, which others may wait for
        return Resolved(
            checked, maker, self._promise(maker, chosen, self._rows_also(checked.predictor)), chosen
        )

    def _completed(self, choice: Choice) -> Choice:
        if len(choice.makers) > 1:
            raise ValueError(
                f"at most one of predictor, top, average and coverage must be given, got {choice.makers}"
            )
        if choice.makers:
            return choice
        if not choice.macro and self._predictors:
            return replace(choice, predictor=default_predictor(self._promises))
        return replace(choice, top=min(5, len(self._classes)))

    def _check_objects(self, choice: Choice) -> None:
        check_count("photos", choice.photos)
        check_count("at_least", choice.at_least, low=0)
        if choice.at_most is not None:
            check_count("at_most", choice.at_most)
            if choice.at_most < choice.at_least:
                raise ValueError(f"at_most must be >= at_least ({choice.at_least}), got {choice.at_most}")
        if choice.photos > 1 and not self._knows_priors:
            raise ValueError(f"photos must be 1 for scores of unknown meaning, got {choice.photos}")
        if choice.macro and not self._knows_priors:
            raise ValueError("macro must be false: the model does not know how often each class occurs")
        if choice.place is not None:
            self._populations.match(choice.place)
        if choice.group is not None and self._populations.rows is not None:
            self._populations.rows.members(*choice.group)

    def in_other_words(self, choice: Choice) -> Choice:
        """Return the choice that makes a predictor's kind of sets from the rows, for other objects."""
        if choice.predictor is None:
            return choice
        predictor = self._named(choice)
        if not choice.is_special or self._populations.rows is None or not self._knows_priors:
            return choice
        if predictor.activation != "softmax" or predictor.place is not None:
            return choice
        if predictor.weights is not None and predictor.tau != 1:
            return choice
        unnamed = replace(choice, predictor=None, macro=predictor.weights is not None)
        if isinstance(predictor, TopK) and not (choice.at_least or choice.at_most):
            return replace(unnamed, top=predictor.k)
        if isinstance(predictor, AverageK | Conformal):
            at_least = max(choice.at_least, predictor.at_least)
            unnamed = replace(unnamed, at_least=at_least, at_most=choice.at_most or predictor.at_most)
        if isinstance(predictor, AverageK):
            return replace(unnamed, average=predictor.k)
        if isinstance(predictor, Conformal) and _is_plain(predictor):
            macro = isinstance(predictor.rule, Macro)
            return replace(unnamed, coverage=predictor.coverage, macro=macro)
        return choice

    def _named(self, choice: Choice) -> SetPredictor:
        name = choice.predictor or ""
        if name not in self._predictors:
            names = f"one of {', '.join(self._predictors)}"
            names = names if self._predictors else "given to the model: it has none"
            raise ValueError(f"predictor must be {names}, got {name!r}")
        if choice.macro:
            raise ValueError(
                "macro goes with top, average or coverage: a predictor has its own priors or none"
            )
        if choice.photos > 1 and self._predictors[name].activation != "softmax":
            raise ValueError(
                f"predictor must be one for probabilities that sum to 1 if there are several photos, "
                f"got {name!r}"
            )
        return self._predictors[name]

    def _check_maker(self, maker: Choice) -> None:
        [name] = maker.makers
        if name in ("predictor", "top") and (maker.at_least or maker.at_most):
            what = "at_least" if maker.at_least else "at_most"
            raise ValueError(f"{what} goes with average or coverage, got it with {name}")
        if maker.top is not None and not 1 <= maker.top <= len(self._classes):
            raise ValueError(f"top must be from 1 to {len(self._classes)}, got {maker.top}")
        if name in ("average", "coverage") and (self._populations.rows is None or not self._knows_priors):
            raise ValueError(
                f"{name} must not be given: the model kept nothing of its calibration rows. Choose one of "
                f"its predictors ({', '.join(self._predictors) or 'none'}) or top"
            )

    def _chosen(self, maker: Choice) -> ChosenPopulation | None:
        if not self._knows_priors:
            return None
        if maker.predictor is not None:
            macro = self._predictors[maker.predictor].weights is not None
            maker = replace(maker, predictor=None, macro=macro)
        return self._populations.of(maker)

    def _check_sizes(self, maker: Choice, chosen: ChosenPopulation | None) -> None:
        """Check an average size or a coverage."""
        if maker.average is None and maker.coverage is None:
            return
        [name] = maker.makers
        if chosen is None:
            kind = "an average size" if name == "average" else "a coverage"
            raise ValueError(
                f"place must have a class with calibration rows for lists of {kind}, got none: choose top"
            )
        if maker.coverage is not None:
            chosen.population.thresholds(maker.coverage)
        elif maker.average is not None:
            low, high = max(1, maker.at_least), chosen.population.max_size
            high = high if maker.at_most is None else min(high, maker.at_most)
            if high < 1:
                raise ValueError("average must be left out where 1 class is possible: choose top or coverage")
            if not low <= maker.average <= high:
                classes = chosen.population.num_classes
                few = f" ({classes} classes are possible)" if classes <= maker.average else ""
                raise ValueError(f"average must be from {low:g} to {high:g}, got {maker.average:g}{few}")

    def _promise(self, maker: Choice, chosen: ChosenPopulation | None, rows_also: str) -> Promise:
        if maker.predictor is not None:
            promise = self._promises[maker.predictor]
            voids = {"place": maker.place, "group": maker.group, "photos": maker.photos > 1}
            return replace(promise, void=next((void for void, asked in voids.items() if asked), None))
        if chosen is None:
            classes = None if maker.place is None else self._populations.match(maker.place).matched
            return Promise("nothing", size=_size(maker, classes))
        population, scope, void = chosen
        facts = {"scope": scope, "rows": population.size, "void": void, "at_most": maker.at_most}
        facts["share_rows"] = population.effective_size
        if maker.place is not None:
            match = self._populations.match(maker.place)
            facts |= {"place": maker.place.shown, "classes": match.matched}
        if maker.top is not None:
            share = population.coverage_of_top(maker.top)
            return Promise("nothing", size=_size(maker, population.num_classes), share=share, **facts)
        bounds = {"at_least": maker.at_least, "at_most": maker.at_most}
        if maker.average is not None:
            share = population.coverage_at(maker.average, **bounds)
            return Promise("size", size=maker.average, share=share, **{**facts, **bounds})
        assert maker.coverage is not None
        level, share = maker.coverage, None
        most = population.num_classes if maker.at_most is None else maker.at_most
        if most < population.num_classes and not population.reaches(level, most):
            share, void = population.coverage_of_top(most), "at most"
        return Promise(
            _about(maker),
            level=level,
            asked=level,
            has_law=population.importance is None,
            left_out=population.without_rows,
            lists_all=not population.is_enough(level),
            rows_also=rows_also,
            share=share,
            **{**facts, **bounds, "void": void},
        )

    def _rows_also(self, name: str | None) -> str:
        """Return what else the rows served for: those of a predictor, or else of the first with a report."""
        predictors = self._predictors if name is None else {name: self._predictors[name]}
        reports = [predictor.report for predictor in predictors.values()]
        return next((report.rows_also for report in reports if report is not None), "")  # the same rows


def _size(choice: Choice, classes: int | None) -> int | None:
    """Return the size of lists of the best classes, of which so many are possible."""
    return choice.top if choice.top is None or classes is None else min(choice.top, classes)


def _about(choice: Choice) -> About:
    if choice.macro:
        return "average class"
    return "rows" if choice.place is None else "place"


def _is_plain(predictor: Conformal) -> bool:
    """Whether a predictor takes the largest probabilities, for all rows together or the average class."""
    rule = predictor.rule
    if isinstance(rule, Macro):
        plain = rule.groups is None and rule.importance is None
    else:
        plain = isinstance(rule, thresholds.Marginal)
    fits = isinstance(predictor.score, conformity.LAC | conformity.PrevalenceAdjusted)
    return plain and fits and not predictor.randomized
