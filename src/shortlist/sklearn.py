"""Sets of classes from any classifier of scikit-learn: ``pip install 'shortlist[sklearn]'``."""

import copy
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal, TypeGuard

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    MetaEstimatorMixin,
    TransformerMixin,
    clone,
    is_classifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import KFold, ShuffleSplit, check_cv
from sklearn.utils import _safe_indexing, column_or_1d, get_tags, indexable
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    _raise_for_params,
    process_routing,
)
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params, _num_samples, check_is_fitted

from shortlist._bounds import check_choice
from shortlist._checks import check_number
from shortlist.predictors import (
    CalibrationWarning,
    Conformal,
    CrossConformal,
    SetPredictor,
    check_crosses,
    thresholds,
)
from shortlist.promise import Promise

__all__ = ["SetClassifier", "coverage_scorer", "set_size_scorer"]


class SetClassifier(ClassifierMixin, TransformerMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier of scikit-learn that answers with sets of classes, calibrated on rows it did not learn.

    Args:
        estimator: Classifier with ``predict_proba`` or ``decision_function``; logistic regression if
            ``None``. A trained one in a :class:`sklearn.frozen.FrozenEstimator` is not trained again: all
            rows of :meth:`fit` calibrate.
        predictor: Predictor of :mod:`shortlist.predictors`; ``Conformal(0.9)`` if ``None``. It stays as it
            is: :meth:`fit` calibrates a copy. Probabilities of the estimator are taken as they are.
        cv: Which rows calibrate. A share such as 0.2: so many rows, drawn at random, calibrate, and the
            others train; the promise is then the predictor's own. A number of folds, a splitter of
            scikit-learn, or an iterable of (train, test): all rows do both, each by a model that did not see
            it (:class:`~shortlist.predictors.cross.CrossConformal`), which promises less and needs a training
            for each fold.
        output: What :meth:`predict` returns. ``"class"``: the best class, so that scorers of scikit-learn and
            searches work as for any classifier. ``"lists"``: see :meth:`predict_lists`. ``"indicator"``: see
            :meth:`predict_set`.
        n_jobs: Number of folds that train at a time, as in scikit-learn.
        random_state: Seed of the split, where ``cv`` is a number.

    Attributes:
        classes_: Labels of the classes (c,), sorted.
        estimators_: Trained classifiers: one, or for cross-conformal sets one for each fold.
        predictor_: What makes the sets: the calibrated predictor, or a ``CrossConformal``.
        promise_: What the sets promise; ``shortlist.sentences.promise_words`` says it in words.
        calibration_rows_: Number of rows that calibrated.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> flowers, kinds = load_iris(return_X_y=True)
        >>> sets = SetClassifier(predictor=Conformal(0.95), random_state=0).fit(flowers, kinds)
        >>> sets.predict_set(flowers[:1])
        array([[ True, False, False]])
        >>> sets.promise_.level
        0.95
    """

    def __init__(
        self,
        estimator: Any = None,
        predictor: SetPredictor | None = None,
        *,
        cv: Any = 0.2,
        output: Literal["class", "lists", "indicator"] = "class",
        n_jobs: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.predictor = predictor
        self.cv = cv
        self.output = output
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any, **params: Any) -> "SetClassifier":
        """Train on a part of the rows, and calibrate on the others.

        Args:
            X: Inputs (n, ...), as the estimator takes them.
            y: Labels (n,) of any kind.
            params: What else the estimator and the splitter take of each row, such as ``sample_weight`` and
                ``groups``; needs ``sklearn.set_config(enable_metadata_routing=True)`` and requests.

        Returns:
            The classifier itself.
        """
        _raise_for_params(params, self, "fit")
        check_choice("output", self.output, ("class", "lists", "indicator"))
        routed = process_routing(self, "fit", **params)
        check_classification_targets(y)
        X, y = indexable(X, y)
        y = column_or_1d(y, warn=True)
        self.classes_, target = np.unique(y, return_inverse=True)
        estimator = self._estimator()
        predictor = self._own_predictor(estimator)
        folds = list(self._folds(estimator, X, y, routed.splitter.split))
        if len(folds) > 1 and _can_cross(predictor):
            check_crosses(predictor)
        work = (delayed(_fit_and_score)(estimator, X, y, *fold, self, routed) for fold in folds)
        made: list[Any] = list(Parallel(n_jobs=self.n_jobs)(work))  # pyright: ignore[reportArgumentType]
        self.estimators_ = [fitted for fitted, _ in made]
        scored = [(scores, target[fold[1]]) for (_, scores), fold in zip(made, folds, strict=True)]
        self._calibrate(predictor, scored, lambda: _fit(estimator, X, y, None, routed.estimator.fit))
        self.calibration_rows_ = sum(len(rows) for rows, _ in scored)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimators_[0], name):
                setattr(self, name, getattr(self.estimators_[0], name))
        return self

    def _calibrate(self, predictor: SetPredictor, scored: list[Any], refit: Callable[[], Any]) -> None:
        """Make ``predictor_`` and ``promise_``; train a last time if the models of the folds are no help."""
        if len(scored) > 1 and _can_cross(predictor):
            self.predictor_ = CrossConformal(predictor, scored)
            self.promise_ = self.predictor_.promise
            return
        if predictor.needs_calibration:
            scores, target = (np.concatenate(parts) for parts in zip(*scored, strict=True))
            predictor.calibrate(scores, target)
        self.predictor_, self.promise_ = predictor, predictor.promise
        if len(scored) > 1:
            self.estimators_ = [refit()]
            self.promise_ = _without_coverage(predictor.promise)

    def predict(self, X: Any) -> np.ndarray:
        """Return the best class of each row, its list, or its set, as ``output`` says."""
        check_is_fitted(self)
        if self.output == "lists":
            return self.predict_lists(X)
        return self.predict_set(X) if self.output == "indicator" else self._best(X)

    def _best(self, X: Any) -> np.ndarray:
        if len(self.estimators_) == 1:
            return self.estimators_[0].predict(X)
        return self.classes_[np.mean(self._scores(X), axis=0).argmax(1)]

    @available_if(lambda self: hasattr(self._shown_estimator(), "predict_proba"))
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities (n, c) of the estimator; of several folds, their mean."""
        check_is_fitted(self)
        return np.mean(self._scores(X), axis=0)

    def predict_set(self, X: Any) -> np.ndarray:
        """Return the sets (n, c), bool: column j is ``classes_[j]``."""
        check_is_fitted(self)
        scores = self._scores(X)
        if isinstance(self.predictor_, CrossConformal):
            return self.predictor_(scores).cpu().numpy()
        return self.predictor_(scores[0]).cpu().numpy()

    def predict_lists(self, X: Any) -> np.ndarray:
        """Return the lists (n,): for each row an array of the classes in its set, the best first."""
        check_is_fitted(self)
        mean = np.mean(self._scores(X), axis=0)
        lists = np.empty(len(mean), dtype=object)
        best_first = (-mean).argsort(1, kind="stable")
        for row, inside in enumerate(self.predict_set(X)):
            lists[row] = self.classes_[[index for index in best_first[row] if inside[index]]]
        return lists

    def transform(self, X: Any) -> np.ndarray:
        """Return :meth:`predict_set`, with the classes as names of columns after ``set_output``.

        It is what a pipeline hands out, and what the scorers take.
        """
        return self.predict_set(X)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the classes as names of the columns of :meth:`transform`."""
        check_is_fitted(self)
        return np.asarray([str(label) for label in self.classes_], dtype=object)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of the best class, whatever :meth:`predict` returns."""
        check_is_fitted(self)
        return float(accuracy_score(y, self._best(X), sample_weight=sample_weight))

    def get_metadata_routing(self) -> MetadataRouter:
        """Return how ``fit`` hands on metadata: to ``fit`` of the estimator and ``split`` of the splitter."""
        router = MetadataRouter(owner=self)
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router.add(estimator=self._estimator(), method_mapping=mapping)
        mapping = MethodMapping().add(caller="fit", callee="split")
        return router.add(splitter=self._splitter(), method_mapping=mapping)

    def __sklearn_tags__(self) -> Any:
        tags, of_estimator = super().__sklearn_tags__(), get_tags(self._estimator())
        tags.input_tags = of_estimator.input_tags
        if of_estimator.classifier_tags is not None:  # whatever it takes, here a row has one label
            tags.classifier_tags = replace(of_estimator.classifier_tags, multi_label=False)
        tags.transformer_tags.preserves_dtype = []
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "predictor_")

    def _estimator(self) -> Any:
        estimator = LogisticRegression() if self.estimator is None else self.estimator
        if not is_classifier(estimator):
            raise TypeError(f"estimator must be a classifier, got {estimator!r}")
        return estimator

    def _shown_estimator(self) -> Any:
        return self.estimators_[0] if hasattr(self, "estimators_") else self._estimator()

    def _own_predictor(self, estimator: Any) -> SetPredictor:
        """Return a copy of the predictor that takes what the estimator gives."""
        predictor = Conformal(0.9) if self.predictor is None else copy.deepcopy(self.predictor)
        if not isinstance(predictor, SetPredictor):
            raise TypeError(f"predictor must be of shortlist.predictors, got {predictor!r}")
        if predictor.shift is not None or predictor.place is not None:
            raise ValueError("predictor must be without scores_priors and place, got one with them")
        if hasattr(estimator, "predict_proba"):
            predictor.activation = "none"  # whatever is usual for it: these are probabilities
        predictor.reset()
        return predictor

    def _splitter(self) -> Any:
        if isinstance(self.cv, float):
            share = check_number("cv", self.cv, above=0.0, below=1.0)
            return ShuffleSplit(1, test_size=share, random_state=self.random_state)
        if isinstance(self.cv, int | np.integer) and not isinstance(self.cv, bool):
            return KFold(int(self.cv), shuffle=True, random_state=self.random_state)
        if self.cv is None or isinstance(self.cv, bool | str):
            raise ValueError(
                f"cv must be a share of rows such as 0.2, a number of folds or a splitter, got {self.cv!r}: "
                "wrap a trained estimator in sklearn.frozen.FrozenEstimator"
            )
        return check_cv(self.cv)

    def _folds(self, estimator: Any, X: Any, y: Any, params: Any) -> Iterable[tuple[Any, np.ndarray]]:
        if isinstance(estimator, FrozenEstimator):
            return [(None, np.arange(_num_samples(X)))]
        return self._splitter().split(X, y, **params)

    def _scores(self, X: Any) -> list[np.ndarray]:
        return [_scores_of(estimator, X, self.classes_) for estimator in self.estimators_]


def _fit(estimator: Any, X: Any, y: Any, rows: Any, params: Any) -> Any:
    """Train a copy on some rows; on all of them if ``rows`` is ``None``."""
    trained: Any = clone(estimator)
    if rows is None:
        return trained.fit(X, y, **params)
    params = _check_method_params(X, params=params, indices=rows)
    return trained.fit(_safe_indexing(X, rows), y[rows], **params)


def _fit_and_score(
    estimator: Any, X: Any, y: Any, train: Any, held_out: Any, owner: Any, routed: Any
) -> tuple[Any, np.ndarray]:
    """Train on some rows, and score others by what was trained."""
    fitted = _fit(estimator, X, y, train, routed.estimator.fit)
    return fitted, _scores_of(fitted, _safe_indexing(X, held_out), owner.classes_)


def _scores_of(estimator: Any, X: Any, classes: np.ndarray) -> np.ndarray:
    """Return probabilities (n, c), or decision values; a class that was not trained is impossible."""
    gives_probabilities = hasattr(estimator, "predict_proba")
    method = estimator.predict_proba if gives_probabilities else estimator.decision_function
    values = np.asarray(method(X), dtype=np.float64)
    if values.ndim == 1:  # of two classes, the second one's
        values = np.stack([-values, values], axis=1)
    if len(estimator.classes_) == len(classes):
        return values
    scores = np.full((len(values), len(classes)), 0.0 if gives_probabilities else -np.inf)
    scores[:, np.searchsorted(classes, estimator.classes_)] = values
    return scores


def _can_cross(predictor: SetPredictor) -> TypeGuard[Conformal]:
    """Whether there is a theorem for the models of several folds, with its right options."""
    return isinstance(predictor, Conformal) and isinstance(predictor.rule, thresholds.Marginal)


def _without_coverage(promise: Promise) -> Promise:
    """Return what is left of a promise where the sets are those of a model that saw the calibration rows."""
    if promise.level is None:
        return promise
    warnings.warn(
        "with several folds, only Conformal with the rule 'marginal' promises a coverage: give cv=0.2 for "
        "the promise of this predictor",
        CalibrationWarning,
        stacklevel=4,
    )
    return Promise("nothing", asked=promise.asked, rows=promise.rows)


def coverage_scorer(estimator: Any, X: Any, y: Any) -> float:
    """Return the share of rows whose set holds the true class: a scorer for ``scoring=`` of scikit-learn.

    It takes a :class:`SetClassifier`, or a pipeline that ends with one. A class that was not trained is in
    no set.
    """
    sets = np.asarray(estimator.transform(X), dtype=bool)
    column = {label: index for index, label in enumerate(estimator.classes_)}
    hits = [label in column and sets[row, column[label]] for row, label in enumerate(np.asarray(y))]
    return float(np.mean(hits))


def set_size_scorer(estimator: Any, X: Any, y: Any = None) -> float:
    """Return minus the mean number of classes in a set, so that a search prefers short sets."""
    return -float(np.asarray(estimator.transform(X), dtype=bool).sum(1).mean())
