"""Counters in the text form of Prometheus."""

import logging
import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping

__all__ = ["CONTENT_TYPE", "Metrics"]

_LOG = logging.getLogger("shortlist.serve")
_TELL_SECONDS = 1.0

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_IMAGES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class _Histogram:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: str = "") -> list[str]:
        found, total = [], 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            total += count
            found.append(f'{name}_bucket{{{labels}{"," if labels else ""}le="{bound}"}} {total}')
        around = f"{{{labels}}}" if labels else ""
        return [*found, f"{name}_sum{around} {self.sum:.6f}", f"{name}_count{around} {total}"]


class Metrics:
    """Counters of a server; routes are those of the API, never a path that a client made up.

    Args:
        exchange: For one of several processes: function that takes its counters and gives those of all. It is
            called each second, so that the others know them.
    """

    def __init__(self, exchange: Callable[[str], Mapping[int, str]] | None = None) -> None:
        self._lock = threading.Lock()
        self._exchange, self._ended = exchange, threading.Event()
        self._requests: dict[tuple[str, int], int] = {}
        self._seconds: dict[str, _Histogram] = {}
        self._batches, self._model_seconds = _Histogram(_IMAGES), 0.0
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self.about: Mapping[str, str] = {}

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        with self._lock:
            self._requests[route, status] = self._requests.get((route, status), 0) + 1
            self._seconds.setdefault(route, _Histogram(_SECONDS)).add(seconds)

    def batch(self, images: int, seconds: float) -> None:
        """Count a batch that went through the model."""
        with self._lock:
            self._batches.add(images)
            self._model_seconds += seconds

    def start(self) -> None:
        """Begin to tell the counters to other processes, if there are any."""
        if self._exchange is not None:
            threading.Thread(target=self._tell, name="counters", daemon=True).start()

    def close(self) -> None:
        """Tell nobody from now on."""
        self._ended.set()

    def _tell(self) -> None:
        while not self._ended.wait(_TELL_SECONDS):
            self.of_all()

    def of_all(self) -> str:
        """Return the counters of all processes, each with its number as a label; or those of the only one."""
        own = self.text()
        if self._exchange is None:
            return own
        try:
            return _together(self._exchange(own))
        except (OSError, ValueError) as error:  # the parent is gone, and this process will be soon
            _LOG.error("the counters of other processes are not known: %s", error)
            return own

    def text(self) -> str:
        """Return the counters of this process."""
        with self._lock:
            lines = _head("requests_total", "counter", "Requests that were answered.")
            for (route, status), count in sorted(self._requests.items()):
                lines.append(f'shortlist_requests_total{{route="{route}",status="{status}"}} {count}')
            lines += _head("request_seconds", "histogram", "Time from the first byte to the answer.")
            for route, seconds in sorted(self._seconds.items()):
                lines += seconds.lines("shortlist_request_seconds", f'route="{route}"')
            lines += _head("batch_images", "histogram", "Images that went through the model together.")
            lines += self._batches.lines("shortlist_batch_images")
            lines += _head("model_seconds_total", "counter", "Time in the model.")
            lines.append(f"shortlist_model_seconds_total {self._model_seconds:.6f}")
        for name, (words, read) in self.gauges.items():
            lines += [*_head(name, "gauge", words), f"shortlist_{name} {read():g}"]
        if self.about:
            labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in self.about.items())
            lines += [*_head("model_info", "gauge", "The model."), f"shortlist_model_info{{{labels}}} 1"]
        return "\n".join(lines) + "\n"


def _together(texts: Mapping[int, str]) -> str:
    """Join the counters of processes: of each metric, which is told about once, the lines of all."""
    lines: dict[str, list[str]] = {}
    for number, text in sorted(texts.items()):
        metric: list[str] = []
        for line in text.splitlines():
            if line.startswith("# HELP"):
                metric = lines.setdefault(line, [])
            elif line.startswith("#"):
                if line not in metric:
                    metric.append(line)
            else:
                metric.append(_labeled(line, f'process="{number}"'))
    return "".join("\n".join([head, *rest]) + "\n" for head, rest in lines.items())


def _labeled(line: str, label: str) -> str:
    name, brace, rest = line.partition("{")
    if brace:
        return f"{name}{{{label},{rest}"
    name, _, value = line.partition(" ")
    return f"{name}{{{label}}} {value}"


def _head(name: str, kind: str, words: str) -> list[str]:
    return [f"# HELP shortlist_{name} {words}", f"# TYPE shortlist_{name} {kind}"]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
