"""Counters for Prometheus, of one process or of all processes of a server."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
    values,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_IMAGES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # by which the library knows the folder
_TELL_SECONDS = 1.0


def share_metrics(folder: Path, number: int) -> None:
    """Share the counters of this process with others, by files in a folder; before any are made."""
    os.environ[_FOLDER] = str(folder)
    values.ValueClass = values.MultiProcessValue(lambda: number)


def forget_process(folder: Path, number: int) -> None:
    """Forget the state of a process that is gone; what it has counted stays."""
    mark_process_dead(number, str(folder))


class Metrics:
    """Counters of a server; routes are those of the API, never a path that a client made up."""

    def __init__(self) -> None:
        disable_created_metrics()
        self._registry, self._thread = CollectorRegistry(), None
        self._model: Gauge | None = None
        self._served: dict[str, str] = {}
        self._watched: dict[str, tuple[Gauge, Callable[[], float]]] = {}
        parts = {"namespace": "shortlist", "registry": self._registry}
        self._requests = Counter("requests", "Requests that were answered.", ["route", "status"], **parts)
        self._seconds = Histogram(
            "request_seconds", "Time from the first byte to the answer.", ["route"], buckets=_SECONDS, **parts
        )
        self._batches = Histogram(
            "batch_images", "Images that went through the model together.", buckets=_IMAGES, **parts
        )
        self._model_seconds = Counter("model_seconds", "Time in the model.", **parts)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.labels(route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def batch(self, images: int, seconds: float) -> None:
        """Count a batch that went through the model."""
        self._batches.observe(images)
        self._model_seconds.inc(seconds)

    def watch(self, name: str, words: str, read: Callable[[], float]) -> None:
        """Tell what a function says whenever somebody asks, and each second to other processes.

        A service that takes the place of another one watches the same names.
        """
        gauge = self._watched[name][0] if name in self._watched else self._gauge(name, words)
        self._watched[name] = gauge, read

    def serves(self, **about: str) -> None:
        """Tell which model is served now."""
        if self._model is None:
            self._model = self._gauge("model_info", "The model that is served: 1; one before: 0.", *about)
        elif self._served:
            self._model.labels(**self._served).set(0)
        self._served = about
        self._model.labels(**about).set(1)

    def _gauge(self, name: str, words: str, *labels: str) -> Gauge:
        parts = {"namespace": "shortlist", "registry": self._registry}
        return Gauge(name, words, labels, multiprocess_mode="liveall", **parts)

    def start(self) -> None:
        """Begin to tell other processes, if there are any."""
        if _FOLDER in os.environ and self._thread is None:
            self._thread = threading.Thread(target=self._tell, name="counters", daemon=True)
            self._thread.start()

    def _tell(self) -> None:
        while True:
            self._look()
            time.sleep(_TELL_SECONDS)

    def _look(self) -> None:
        for gauge, read in self._watched.values():
            gauge.set(read())

    def text(self) -> str:
        """Return the text for Prometheus: counters of all processes together, and the state of each."""
        self._look()
        registry = self._registry
        if _FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        return generate_latest(registry).decode()
