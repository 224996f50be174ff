"""The finished model: preprocessing, network, score map, predictors and class table in one object."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

import shortlist.model.checks as checks
import shortlist.model.files as files
from shortlist._bounds import check_choice
from shortlist._checks import check_count, promote
from shortlist.class_table import ClassTable
from shortlist.metrics import Results
from shortlist.model.choice import Choice
from shortlist.model.files import ModelError
from shortlist.model.graph import HeadChoice, known_shape, onnx_of, write_onnx
from shortlist.model.hub import OnHub
from shortlist.model.images import in_parts, prepare_images
from shortlist.model.inputs import Rows, check_batch, running, tensor_on
from shortlist.model.listing import Lister, ShortList
from shortlist.model.saved import SavedModel
from shortlist.models import NetworkSpec, classifier_input, head_scores, output_and_features
from shortlist.predictors import CalibrationRows, NoveltyDetector, Population, SetPredictor
from shortlist.preprocessing import Preprocessing
from shortlist.promise import Promise
from shortlist.scores import PriorRecord, ScoreMap


@dataclass(frozen=True, eq=False, repr=False)
class Model(OnHub):
    """A trained network with all that is needed to make short lists of images.

    Made by :meth:`from_parts` or a training run, kept by :meth:`save`, opened by :meth:`load`.

    Attributes:
        network: Network from prepared inputs (n, ...) to scores (n, c), in evaluation mode.
        classes: Names, ids, parents and training counts of the c classes.
        preprocessing: Rule from an image to an input; ``None`` if the inputs are not images.
        score_map: Map from the network's output to log-posteriors.
        predictors: Predictors by name.
        promises: By name of the predictor, what its lists promise, and what was measured on held-out rows.
        novelty: Detector of inputs that belong to none of the classes; ``None`` if there is none.
        head: Head to predict from, for a network of two heads.
        classifier: Dotted name of the network's classifier; ``None`` to find it.
        spec: Specification of the network; ``None`` if there is none.
        about: Plain values about the model, such as name, version and date.

    Example:
        >>> from shortlist.predictors import TopK
        >>> table = ClassTable(names=("oak", "beech", "birch"), counts=(6, 3, 1))
        >>> score_map = ScoreMap(3, contains=PriorRecord.training(table.class_counts))
        >>> model = Model.from_parts(nn.Identity(), table, score_map=score_map, predictors={"top2": TopK(2)})
        >>> [candidates] = model.short_lists(torch.tensor([[0.1, 0.2, 0.7]]).log())
        >>> [(candidate.name, round(candidate.probability, 2)) for candidate in candidates]
        [('birch', 0.7), ('beech', 0.2)]
    """

    network: nn.Module
    classes: ClassTable
    preprocessing: Preprocessing | None
    score_map: ScoreMap
    predictors: dict[str, SetPredictor]
    promises: dict[str, Promise]
    novelty: NoveltyDetector | None
    head: HeadChoice
    classifier: str | None
    spec: NetworkSpec | None
    about: dict[str, Any]
    _rows: CalibrationRows | Callable[[], CalibrationRows | None] | None

    @staticmethod
    def from_parts(
        network: nn.Module,
        class_table: ClassTable,
        *,
        preprocessing: Preprocessing | None = None,
        score_map: ScoreMap | None = None,
        predictors: Mapping[str, SetPredictor] | None = None,
        promises: Mapping[str, Promise] | None = None,
        novelty: NoveltyDetector | None = None,
        head: HeadChoice = "set",
        classifier: str | None = None,
        spec: NetworkSpec | None = None,
        about: Mapping[str, Any] | None = None,
        calibration_rows: CalibrationRows | Callable[[], CalibrationRows | None] | None = None,
    ) -> "Model":
        """Make a model from its parts.

        Args:
            network: Network from inputs (n, ...) to scores (n, c), or to those of two heads
                (:class:`~shortlist.models.heads.TwoHeadScores`). It is put into evaluation mode; the other
                parts move to its device.
            class_table: Table of the c classes.
            preprocessing: Rule from an image to an input.
            score_map: Map from the network's scores to log-posteriors. For a known loss, use
                :func:`~shortlist.scores.map_of_loss`; for scores of another origin,
                ``ScoreMap(c, contains=None).identified(...)`` with the numbers of
                :func:`~shortlist.scores.fit_temperature_and_prior`. If ``None``, the meaning of the scores
                is not known: they are left as they are, and probabilities and short lists are refused.
            predictors: Predictors by name, calibrated on scores that went through the map (see
                :meth:`scores`). If it gives log-posteriors, their activation must not be ``"none"``.
            promises: By name of a predictor, its promise with what was measured, as in the results of
                :func:`~shortlist.metrics.evaluate`. Of others it is what the predictor tells.
            novelty: Detector of strangers, calibrated on such scores, or on :meth:`features`.
            head: Head to predict from, for a network of two heads: ``"set"`` or ``"proposal"``.
            classifier: Dotted name of the classifier, whose input are the :meth:`features`.
            spec: Specification to build the network again. Without it, :meth:`load` needs the network.
            about: Plain values about the model, for people.
            calibration_rows: Rows of :func:`~shortlist.model.keep_rows`, from which sets of any coverage and
                any average size are made, for any place; or what reads them when they are first needed.

        Raises:
            ValueError: If the parts do not go together.
        """
        score_map = ScoreMap(len(class_table), contains=None) if score_map is None else score_map
        predictors = dict(predictors or {})
        check_choice("head", head, ("set", "proposal"))
        checks.check_parts(len(class_table), score_map, predictors, novelty, spec, calibration_rows)
        checks.check_outputs(network, classifier, len(class_table))
        promises, about = checks.all_promises(predictors, promises or {}), checks.plain_values(about or {})
        parts = (network.eval(), class_table, preprocessing, score_map, predictors, promises, novelty)
        model = Model(*parts, head, classifier, spec, about, calibration_rows)
        for part in (score_map, *predictors.values(), *([] if novelty is None else [novelty])):
            part.to(model.device)
        return model

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        tensors = chain(self.network.parameters(), self.network.buffers(), [self.score_map.scale])
        return next(tensors).device

    def to(self, device: str | torch.device) -> "Model":
        """Move all parts to a device, and return the model itself."""
        for part in (self.network, self.score_map, self._to_shown, *self.predictors.values(), self.novelty):
            if part is not None:
                part.to(device)
        return self

    @cached_property
    def calibration_rows(self) -> CalibrationRows | None:
        """Calibration rows, for sets that no predictor makes; ``None`` if none are kept."""
        return self._rows() if callable(self._rows) else self._rows

    @cached_property
    def _lister(self) -> Lister:
        return Lister(
            self.classes,
            self.predictors,
            self.promises,
            probabilities=None if self.score_map.now is None else self.probabilities,
            priors=self.score_map.now,
            rows=self.calibration_rows,
            novelty=self.novelty,
        )

    def __repr__(self) -> str:
        network = type(self.network).__name__ if self.spec is None else self.spec.name
        predictors = ", ".join(self.predictors) or "none"
        return f"Model({network}, {len(self.classes)} classes, predictors: {predictors})"

    @cached_property
    def _to_shown(self) -> ScoreMap:
        """Convert mapped scores to those whose softmax is shown to people."""
        shown = now = self.score_map.now
        if now is not None and self.classes.counts:
            shown = PriorRecord.training(self.classes.class_counts)
        return ScoreMap(len(self.classes), contains=now, now=shown).to(self.device)

    def scores(self, batch: Rows) -> Float[Tensor, "n c"]:
        """Compute the scores (n, c), float32, of prepared inputs (n, ...), by network and score map.

        Inputs and scores may be tensors or NumPy arrays, in all methods.
        """
        with self._running(batch) as inputs:
            return self._mapped(self.network(inputs))

    def _mapped(self, output: Any) -> Tensor:
        """Return the mapped scores of what the network gave."""
        scores = head_scores(output, self.head)
        if self.spec is None or self.spec.runs_code:
            return self.score_map(scores)  # somebody's own network may keep the scores it gives
        return self.score_map.map_(scores)

    def probabilities(self, scores: Rows) -> Float[Tensor, "n c"]:
        """Compute class probabilities (n, c) of :meth:`scores`, for the class frequencies of training rows.

        Without training counts, they are for the class frequencies that the score map's result assumes.

        It is an ``UnknownPriorError`` if the meaning of the scores is not known.
        """
        self._check_known()
        with torch.inference_mode():
            return self._to_shown(tensor_on(self.device, scores)).softmax(1)

    def shown(self, scores: Rows) -> Float[Tensor, "n c"] | None:
        """Convert :meth:`scores` to those whose softmax are the :meth:`probabilities`.

        They are returned as they are if nothing is to convert; ``None`` if their meaning is not known.
        """
        if self.score_map.now is None:
            return None
        with torch.inference_mode():
            return self._to_shown(tensor_on(self.device, scores))

    def features(self, batch: Rows) -> Tensor:
        """Compute the features (n, d) of prepared inputs (n, ...), which the classifier takes."""
        with self._running(batch) as inputs:
            return promote(classifier_input(self.network, inputs, name=self.classifier))

    def scores_and_features(self, batch: Rows) -> tuple[Float[Tensor, "n c"], Tensor]:
        """Compute what :meth:`scores` and :meth:`features` give, by one pass through the network."""
        with self._running(batch) as inputs:
            output = output_and_features(self.network, inputs, name=self.classifier)
            return self._mapped(output[0]), promote(output[1])

    def scored(self, batch: Rows, *, features: bool = False) -> tuple[Float[Tensor, "n c"], Tensor | None]:
        """Compute scores for :meth:`lists`; features too if asked for, or if the detector needs them."""
        if features or (self.novelty is not None and self.novelty.needs != "scores"):
            return self.scores_and_features(batch)
        return self.scores(batch), None

    def sets(self, scores: Rows, predictor: str | None = None) -> Bool[Tensor, "n c"]:
        """Return the sets (n, c) of scores from :meth:`scores`, by a predictor (see ``predictors``)."""
        with torch.inference_mode():
            return self._predictor(predictor)(tensor_on(self.device, scores))

    def prepare(self, images: Iterable[Any]) -> Tensor:
        """Make inputs (n, ...) from paths, pictures, or tensors and arrays that are already prepared.

        Pictures are Pillow images, or NumPy arrays of uint8 (h, w) or (h, w, 3) in RGB. It is an error
        if a file cannot be read, or the model does not know how pictures become inputs.
        """
        return prepare_images(images, self.preprocessing)

    def short_lists(
        self,
        images: Iterable[Any],
        choice: Choice | str | None = None,
        *,
        at_least: int = 0,
        batch_size: int = 64,
    ) -> list[ShortList]:
        """Return the short list of each image: its candidate classes, the one with the best score first.

        The best score need not have the largest probability: scores may contain other priors.

        Args:
            images: Paths, Pillow images, pictures as NumPy arrays of uint8 (h, w, 3), prepared tensors or
                arrays, or one batch (n, ...) of prepared inputs, such as embeddings.
            choice: What makes the sets: a choice, or the name of a predictor; see ``Choice`` for ``None``.
            at_least: Number of best classes that are listed in any case, in the set or not.
            batch_size: Number of objects that go through the network at a time.

        Raises:
            ValueError: If the model cannot make such sets, an image cannot be read, or its scores are no
                numbers or of unknown meaning (``UnknownPriorError``).
        """
        check_count("batch_size", batch_size)
        self._check_known()
        resolved, _ = self.resolve(choice)
        check_batch(images, known_shape(self.spec, self.preprocessing))
        lists: list[ShortList] = []
        for part in in_parts(images, batch_size * resolved.photos):
            scores, features = self.scored(self.prepare(part))
            for made in self.lists(scores, resolved, features=features, at_least=at_least):
                if made is None:
                    raise ValueError(f"scores must be numbers, got others for image {len(lists)}")
                lists.append(made)
        return lists

    def lists(
        self,
        scores: Rows,
        choice: Choice | str | None = None,
        *,
        features: Rows | None = None,
        at_least: int = 0,
        limit: int | None = None,
    ) -> list[ShortList | None]:
        """Return the short list of each object: the one way, for images, finished scores and servers.

        Args:
            scores: Scores (n, c) of :meth:`scores`; of several photos of an object, row after row.
            choice: What makes the sets: a choice, or the name of a predictor; see ``Choice`` for ``None``.
            features: Features (n, d) of :meth:`features`, for a detector of strangers that needs them.
            at_least: Number of best classes that are listed in any case, in the set or not.
            limit: Largest number of classes in a list, those of the set first; any number if ``None``.

        Returns:
            A list for each object, without probabilities if the meaning of the scores is not known; ``None``
            where scores are not numbers.

        Raises:
            ValueError: If the model cannot make such sets; the message names the argument.
        """
        scores = tensor_on(self.device, scores)
        features = None if features is None else tensor_on(self.device, features)
        with torch.inference_mode():
            return self._lister.lists(scores, _choice(choice), features, at_least=at_least, limit=limit)

    def resolve(self, choice: Choice | str | None = None) -> tuple[Choice, Promise]:
        """Return a choice with nothing left open, and what is promised about its lists.

        Raises:
            ValueError: If the model cannot make such sets; the message names the argument.
        """
        resolved = self._lister.resolve(_choice(choice))
        return resolved.choice, resolved.promise

    def population(self, choice: Choice | str | None = None) -> Population | None:
        """Return the calibration rows that the lists of a choice are about; ``None`` without such rows."""
        chosen = self._lister.resolve(_choice(choice)).chosen
        return None if chosen is None else chosen.population

    def save(self, folder: str | Path, *, results: Results | None = None) -> None:
        """Save the model, and results of its lists, to a new folder, which appears when it is complete.

        Raises:
            ModelError: If it exists.
        """
        with files.new_folder(folder) as new:
            files.write_network(new, self.network)
            files.write_class_table(new, self.classes)
            parts = (self.head, self.score_map, self.predictors, self.novelty, self.calibration_rows)
            about = files.description_of(self.spec, self.preprocessing, self.classifier, self.about)
            files.write_calibration(new, *parts, about, self.promises, results)

    @staticmethod
    def load(
        path: str | Path, *, network: nn.Module | str | None = None, device: str | torch.device = "cpu"
    ) -> "Model":
        """Load a saved model. Code that is named in it is never run.

        Args:
            path: Folder that :meth:`save` wrote, or a run folder with a model in it.
            network: Network to load the weights into, or the name ``"package.module:function"`` of your own
                function that makes it (its code is run). It must be given if the network is your own code.
            device: Device to load the model to.

        Raises:
            ModelError: If a file is missing, damaged or of another format, or the network does not fit.
        """
        folder = files.model_folder(path)
        parts = SavedModel(folder).parts(network)
        try:
            return Model.from_parts(**parts).to(device)
        except ValueError as error:
            raise ModelError(f"{folder} holds parts that do not go together: {error}") from error

    def export_onnx(
        self,
        path: str | Path,
        *,
        predictor: str | None = None,
        batch: Rows | None = None,
        pictures: bool = False,
    ) -> None:
        """Write the model as one ONNX file, for any number of prepared inputs, or for one picture.

        Input ``inputs`` (n, ...), or ``picture`` (height, width, 3), uint8 RGB of any size; outputs
        ``scores`` (n, c), ``probabilities`` (n, c) and, with a predictor, ``sets`` (n, c). Other runtimes
        round otherwise: a class at the threshold may be in or out. :func:`shortlist.model.export_lists`
        writes what lists need beside it. Needs ``pip install 'shortlist[export]'``.

        Args:
            path: Path of the file, which appears only when it is complete.
            predictor: Name of the predictor whose sets are exported; no sets if ``None``.
            batch: Inputs (n, ...) that show shape and type, where neither the network's specification nor the
                preprocessing tells.
            pictures: Whether the preprocessing is in the file. It takes a picture that is upright.
        """
        self._check_known()
        chosen = {} if predictor is None else {"sets": self._predictor(predictor)}
        write_onnx(onnx_of(self, chosen, batch=batch, pictures=pictures), path)

    def _running(self, batch: Rows) -> AbstractContextManager[Tensor]:
        return running(self.network, self.device, batch, known_shape(self.spec, self.preprocessing))

    def _check_known(self) -> None:
        if self.score_map.now is None:
            raise checks.unknown_meaning(len(self.classes))

    def _predictor(self, name: str | None) -> SetPredictor:
        chosen, _ = self.resolve(name)
        if chosen.predictor is None:
            raise ValueError(f"predictor must be given to the model: it has none, got {name!r}")
        return self.predictors[chosen.predictor]


def _choice(choice: Choice | str | None) -> Choice:
    return choice if isinstance(choice, Choice) else Choice(predictor=choice)
