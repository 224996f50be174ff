"""The finished model: preprocessing, network, score map, predictors and class table in one object."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

import shortlist.model.files as files
from shortlist._checks import check_choice, check_count, promote
from shortlist.class_table import ClassTable
from shortlist.model.checks import all_promises, check_outputs, check_parts, plain_values, unknown_meaning
from shortlist.model.files import ModelError
from shortlist.model.graph import HeadChoice, ModelGraph, example_inputs, export_onnx, known_shape
from shortlist.model.images import in_parts, prepare_images, prepare_readable
from shortlist.model.inputs import Rows, check_batch, inputs_for, running, tensor_on
from shortlist.model.saved import SavedModel
from shortlist.model.summary import CalibrationSummary
from shortlist.models.classifiers import classifier_input, output_and_features
from shortlist.models.heads import head_scores
from shortlist.models.spec import NetworkSpec
from shortlist.predictors import (
    Candidate,
    NoveltyDetector,
    Promise,
    SetPredictor,
    TaxonomyNodes,
    default_predictor,
    to_lists,
)
from shortlist.preprocessing import Preprocessing
from shortlist.scores import PriorRecord, ScoreMap

__all__ = ["Model", "ModelError"]


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A trained network with all that is needed to make short lists of images.

    Made by :meth:`from_parts` or a training run, kept in a folder by :meth:`save`, opened by :meth:`load`,
    which needs neither a recipe nor anything that trains.

    Attributes:
        network: Network from prepared inputs (n, ...) to scores (n, c), in evaluation mode.
        classes: Names, ids, parents and training counts of the c classes.
        preprocessing: Rule from an image to an input; ``None`` if the inputs are not images.
        score_map: Map from the network's output to log-posteriors.
        predictors: Predictors by name; ``shortlist.predictors.default_predictor`` chooses if none is named.
        promises: By name of the predictor, what its lists promise, and what was measured on held-out rows, if
            that was done; ``promises[name].words()`` says it in sentences.
        novelty: Detector of inputs that belong to none of the classes; ``None`` if there is none.
        head: Head to predict from, for a network of two heads.
        classifier: Dotted name of the network's classifier; ``None`` to find it.
        spec: Specification of the network; ``None`` if there is none.
        about: Plain values about the model, such as name, version and date.
        summary: What is kept of the calibration rows; ``None`` if nothing is.

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
    summary: CalibrationSummary | None = None

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
        summary: CalibrationSummary | None = None,
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
            summary: What is kept of the calibration rows, by :meth:`CalibrationSummary.of_rows`: sets of any
                coverage and any average size can be made from it.

        Raises:
            ValueError: If the parts do not go together.
        """
        score_map = ScoreMap(len(class_table), contains=None) if score_map is None else score_map
        predictors = dict(predictors or {})
        check_choice("head", head, ("set", "proposal"))
        check_parts(len(class_table), score_map, predictors, novelty, spec, summary)
        check_outputs(network, classifier, len(class_table))
        told = all_promises(predictors, promises or {})
        network, about = network.eval(), plain_values(about or {})
        parts = (network, class_table, preprocessing, score_map, predictors, told, novelty)
        model = Model(*parts, head, classifier, spec, about, summary)
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

    def __repr__(self) -> str:
        network = type(self.network).__name__ if self.spec is None else self.spec.name
        predictors = ", ".join(self.predictors) or "none"
        return f"Model({network}, {len(self.classes)} classes, predictors: {predictors})"

    @cached_property
    def _to_shown(self) -> ScoreMap:
        """Convert mapped scores to those whose softmax is shown to people."""
        now = self.score_map.now
        shown = now
        if now is not None and self.classes.counts:
            shown = PriorRecord.training(self.classes.class_counts)
        return ScoreMap(len(self.classes), contains=now, now=shown).to(self.device)

    def scores(self, batch: Rows) -> Float[Tensor, "n c"]:
        """Compute the scores (n, c), float32, of prepared inputs (n, ...), by network and score map.

        Inputs and scores may be tensors or NumPy arrays, in all methods; what is returned is a tensor.
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
        """Compute class probabilities (n, c), for rows with the class frequencies of the training rows.

        Without training counts in the class table, they are for rows whose classes occur as the score map's
        result assumes.

        Args:
            scores: Scores that :meth:`scores` returned.

        Raises:
            UnknownPriorError: If the meaning of the scores is not known.
        """
        self._check_known()
        with torch.inference_mode():
            return self._to_shown(tensor_on(self.device, scores)).softmax(1)

    def shown(self, scores: Rows) -> Float[Tensor, "n c"] | None:
        """Convert scores from :meth:`scores` to those whose softmax are the :meth:`probabilities`.

        Returns:
            The converted scores, the given tensor itself if there is nothing to convert, or ``None`` if the
            meaning of the scores is not known.
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
            found = output_and_features(self.network, inputs, name=self.classifier)
            return self._mapped(found[0]), promote(found[1])

    def sets(self, scores: Rows, predictor: str | None = None) -> Bool[Tensor, "n c"]:
        """Return the sets (n, c) of scores from :meth:`scores`, by a predictor (see ``predictors``)."""
        with torch.inference_mode():
            return self._predictor(predictor)(tensor_on(self.device, scores))

    def prepare(self, images: Iterable[Any]) -> Tensor:
        """Make inputs (n, ...) from paths, pictures, or tensors and arrays that are already prepared.

        Pictures are Pillow images, or NumPy arrays of uint8 (h, w) or (h, w, 3) in RGB.

        Raises:
            ValueError: If a file cannot be read, or the model does not know how pictures become inputs.
        """
        return prepare_images(images, self.preprocessing)

    def short_lists(
        self,
        images: Iterable[Any],
        predictor: str | None = None,
        *,
        at_least: int = 0,
        batch_size: int = 64,
    ) -> list[list[Candidate]]:
        """Return the candidate classes of each image, the one with the best score first.

        Where the scores contain other class priors than the training rows', as those of a logit-adjusted loss
        do, the best score need not have the largest probability.

        Args:
            images: Paths, Pillow images, pictures as NumPy arrays of uint8 (h, w, 3), prepared tensors or
                arrays, or one batch (n, ...) of prepared inputs, such as embeddings.
            predictor: Name of the predictor whose sets are listed; see ``predictors`` for ``None``.
            at_least: Number of best classes that are listed in any case, in the set or not.
            batch_size: Number of images that go through the network at a time.

        Raises:
            UnknownPriorError: If the meaning of the scores is not known.
            ValueError: If there is no such predictor, or an image cannot be read.
        """
        check_count("batch_size", batch_size)
        self._check_known()
        self._predictor(predictor)
        check_batch(images, self._input_shape)
        lists = []
        for part in in_parts(images, batch_size):
            lists += self._lists(self.scores(self.prepare(part)), predictor, at_least)
        return lists

    def readable_lists(
        self, images: Iterable[Any], predictor: str | None = None, *, at_least: int = 0
    ) -> list[list[Candidate] | None]:
        """Return the candidate classes of each image that can be read, ``None`` for any other.

        As :meth:`short_lists`, for one batch of whatever people send: an image that cannot be read is named
        in a warning, and candidates have no probability where the meaning of the scores is not known.
        """
        inputs, readable = prepare_readable(images, self.preprocessing)
        if not any(readable):
            return [None] * len(readable)
        found = iter(self.lists_of_scores(self.scores(inputs), predictor, at_least=at_least))
        return [next(found) if ok else None for ok in readable]

    def lists_of_scores(
        self, scores: Rows, predictor: str | None = None, *, at_least: int = 0
    ) -> list[list[Candidate] | None]:
        """Return the candidate classes of scores from :meth:`scores`, ``None`` for a row without a number.

        Candidates have no probability where the meaning of the scores is not known.
        """
        scores = tensor_on(self.device, scores)
        known = scores.isfinite().any(1)
        found = iter(self._lists(scores[known], predictor, at_least) if bool(known.any()) else [])
        return [next(found) if ok else None for ok in known.tolist()]

    def _lists(self, scores: Tensor, predictor: str | None, at_least: int) -> list[list[Candidate]]:
        """Turn scores into lists: the one way, for images, saved scores and any server."""
        probabilities = None if self.score_map.now is None else self.probabilities(scores)
        chosen, order = self._predictor(predictor), scores.to(self.device)
        taxonomy = chosen.taxonomy if isinstance(chosen, TaxonomyNodes) else None
        sets = self.sets(scores, predictor)
        return to_lists(sets, probabilities, self.classes, order=order, at_least=at_least, taxonomy=taxonomy)

    def save(self, folder: str | Path) -> None:
        """Save the model to a new folder, which appears only when it is complete.

        Raises:
            ModelError: If it exists.
        """
        with files.new_folder(folder) as new:
            files.write_network(new, self.network)
            files.write_class_table(new, self.classes)
            parts = (self.head, self.score_map, self.predictors, self.novelty, self.summary)
            files.write_calibration(new, *parts, self._description(), self.promises)

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
            model = Model.from_parts(**parts)
        except ValueError as error:
            raise ModelError(f"{folder} holds parts that do not go together: {error}") from error
        return model.to(device)

    def export_onnx(
        self, path: str | Path, *, predictor: str | None = None, batch: Rows | None = None
    ) -> None:
        """Write the model from prepared inputs on as one ONNX file, for any number of rows.

        Input ``inputs`` (n, ...); outputs ``scores`` (n, c), ``probabilities`` (n, c) and, with a predictor,
        ``sets`` (n, c). Other runtimes round otherwise: a class whose score is that of the threshold but for
        the last digits may be in or out. The preprocessing of pictures is not part of it. Needs
        ``pip install 'shortlist[export]'``.

        Args:
            path: Path of the file, which appears only when it is complete.
            predictor: Name of the predictor whose sets are exported; no sets if ``None``.
            batch: Inputs (n, ...) that show shape and type, where neither the network's specification nor the
                preprocessing tells.

        Raises:
            UnknownPriorError: If the meaning of the scores is not known.
        """
        self._check_known()
        chosen = None if predictor is None else self._predictor(predictor)
        graph = ModelGraph(self.network, self.head, self.score_map, self._to_shown, chosen).eval()
        batch = example_inputs(self.spec, self.preprocessing) if batch is None else batch
        self.scores(batch)  # which says what is wrong with it
        export_onnx(graph, inputs_for(self.network, self.device, batch).contiguous(), path)

    def _description(self) -> dict[str, Any]:
        return {
            "network": None if self.spec is None else self.spec.to_dict(),
            "preprocessing": None if self.preprocessing is None else self.preprocessing.to_dict(),
            "head": self.head,
            "classifier": self.classifier,
            "predictors": list(self.predictors),
            "promises": {},
            "novelty": self.novelty is not None,
            "about": self.about,
        }

    @property
    def _input_shape(self) -> tuple[int, ...] | None:
        return known_shape(self.spec, self.preprocessing)

    def _running(self, batch: Rows) -> AbstractContextManager[Tensor]:
        return running(self.network, self.device, batch, self._input_shape)

    def _check_known(self) -> None:
        if self.score_map.now is None:
            raise unknown_meaning(len(self.classes))

    def _predictor(self, name: str | None) -> SetPredictor:
        if name is None and self.predictors:
            name = default_predictor(self.promises)
        if name not in self.predictors:
            known = f"one of {', '.join(self.predictors)}"
            known = known if self.predictors else "given to the model: it has none"
            raise ValueError(f"predictor must be {known}, got {name!r}")
        return self.predictors[name]
