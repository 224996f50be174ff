"""What the processes of a server share, tried within one process."""

import subprocess
import sys

from shortlist.serve.keys import Keys
from shortlist.serve.metrics import Metrics, forget_process

COUNTING = """
import sys
from pathlib import Path
from shortlist.serve.metrics import Metrics, share_metrics
folder, number = Path(sys.argv[1]), int(sys.argv[2])
share_metrics(folder, number)
metrics = Metrics()
metrics.watch("images_waiting", "Images.", lambda: 10 + number)
metrics.serves(name="trees", version="1")
for _ in range(number + 1):
    metrics.request("/v1/identify", 200, 0.002)
print(metrics.text())
"""


def test_counters_are_those_of_all_processes_and_survive_a_death(tmp_path):
    def counted(number: int) -> list[str]:
        command = [sys.executable, "-c", COUNTING, str(tmp_path), str(number)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    labels = 'route="/v1/identify",status="200"'
    assert f"shortlist_requests_total{{{labels}}} 1.0" in counted(0)
    lines = counted(1)
    assert f"shortlist_requests_total{{{labels}}} 3.0" in lines
    assert 'shortlist_images_waiting{pid="0"} 10.0' in lines
    assert 'shortlist_images_waiting{pid="1"} 11.0' in lines
    assert 'shortlist_request_seconds_bucket{le="0.005",route="/v1/identify"} 3.0' in lines
    forget_process(tmp_path, 0)
    lines = counted(1)  # of a process that takes the place of the one before
    assert f"shortlist_requests_total{{{labels}}} 5.0" in lines
    assert not any('pid="0"' in line for line in lines)


def test_the_model_that_is_served_now_is_told():
    metrics = Metrics()
    metrics.serves(name="trees", version="1")
    metrics.serves(name="trees", version="2")
    lines = metrics.text().splitlines()
    assert 'shortlist_model_info{name="trees",version="1"} 0.0' in lines
    assert 'shortlist_model_info{name="trees",version="2"} 1.0' in lines


def test_an_address_of_an_image_is_known_by_all_who_share_a_secret(tmp_path):
    path = tmp_path / "keys"
    path.write_text("0123456789abcdef\n")
    first, second, other = Keys(path, secret=b"s"), Keys(path, secret=b"s"), Keys(path)
    signature = first.sign("0-1").removeprefix("?signature=")
    assert second.is_signed("0-1", signature) and not other.is_signed("0-1", signature)
