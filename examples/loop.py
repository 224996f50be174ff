"""From people's answers to the next model, over HTTP, on glyphs; draws docs/loop.svg.

A model from a few images serves. 200 simulated people look at its lists and answer through the real API, over
several rounds. Votes are aggregated, data grow, models are trained again, pass a gate, and are released; the
server follows. It runs once for each of three rules of votes.

People: 75 in 100 are honest, and know a class with a probability drawn from Beta(5, 2) for each of them; if
they do not know, half say so, and half take a class of the list by its probability. 20 in 100 are careless
and take the first class of the list. 5 in 100 are adversaries and name the same wrong class for each class.
Those who know but do not see their class in the list search for it half of the time, and else say "none of
these". About 10 minutes on one core; `--short` is the version of the tests.
"""

import argparse
import hashlib
import io
import json
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
import uvicorn
from PIL import Image
from torch import Tensor, nn

from shortlist import ClassTable, Model, Preprocessing
from shortlist.compare.frozen import look_at, read_frozen_images
from shortlist.compare.gate import judge_release
from shortlist.curation.build import apply_plan
from shortlist.curation.grow import plan_growth
from shortlist.curation.votes import aggregate_votes
from shortlist.datasets.glyphs import glyphs
from shortlist.feedback.export import write_photos, write_votes
from shortlist.feedback.store import read_events
from shortlist.feedback.votes import collect_votes
from shortlist.inputs.benchmarks import BENCHMARK_FORMAT
from shortlist.inputs.folders import class_folders, images_below
from shortlist.models.spec import NetworkSpec, build_network
from shortlist.predictors import AdaptingThreshold, Conformal, ShrinkingThreshold, TopK
from shortlist.releases import Releases
from shortlist.scores import PriorRecord, ScoreMap
from shortlist.serve.app import make_app
from shortlist.serve.desk import FeedbackDesk
from shortlist.serve.following import Following, Served
from shortlist.serve.service import Service

MEAN, STD = 47 / 255, 86 / 255  # of glyphs
PREPARE = Preprocessing(height=32, width=32, resize=32, mean=(47 / 255,), std=(86 / 255,), color="L")
COVERAGE = 0.9


@dataclass(frozen=True)
class Size:
    """How much is done."""

    classes: int = 30
    seed_images: int = 3  # of each class, to begin with
    calibration_images: int = 400
    test_images: int = 500
    rounds: int = 10
    observations: int = 80  # of each round
    votes: int = 5  # for each observation
    people: int = 200
    steps: int = 160  # of training, with 64 images each
    seed: int = 0  # of people, photos and training


SHORT = Size(
    classes=8, calibration_images=100, test_images=80, rounds=2, observations=30, people=40, steps=40
)


@dataclass(frozen=True)
class Person:
    """A person who answers."""

    name: str
    kind: str
    skill: float

    def answer(self, true: int, shown: list[tuple[int, float]], classes: int, rng: Any) -> tuple[str, int]:
        """Return the verb, and the class that is meant or -1."""
        ids = [one for one, _ in shown]
        if self.kind == "careless":
            return "confirm", ids[0]
        if self.kind == "adversary":
            wrong = (true + 1) % classes
            return ("confirm" if wrong in ids else "other_class"), wrong
        if rng.random() < self.skill:
            if true in ids:
                return "confirm", true
            return ("other_class", true) if rng.random() < 0.5 else ("none_of_these", -1)
        if rng.random() < 0.5:
            return "do_not_know", -1
        weights = np.asarray([probability for _, probability in shown])
        return "confirm", int(rng.choice(ids, p=weights / weights.sum()))


def make_people(size: Size, rng: Any) -> list[Person]:
    """Draw the people."""
    careless, adversaries = round(0.2 * size.people), round(0.05 * size.people)
    kinds = ["careless"] * careless + ["adversary"] * adversaries
    kinds += ["honest"] * (size.people - len(kinds))
    return [Person(f"person-{i}", kind, float(rng.beta(5, 2))) for i, kind in enumerate(kinds)]


@dataclass(frozen=True)
class World:
    """What nobody in the loop knows: all images with their classes."""

    table: ClassTable
    pool: list[tuple[bytes, int]]  # photos that people will take
    stream: tuple[Tensor, Tensor]  # rows that nobody is asked about, for the thresholds


def png(pixels: Tensor) -> bytes:
    """Return a glyph as a PNG file."""
    file = io.BytesIO()
    Image.fromarray(pixels[0].numpy()).save(file, "PNG")
    return file.getvalue()


def make_world(size: Size, folder: Path) -> World:
    """Write the first images: a few to learn from, some to calibrate, and frozen test images."""
    data = glyphs(max_classes=size.classes, train_images=max(1000, 3 * size.rounds * size.observations))
    names = [id.replace("+", "") for id in data.class_table.ids]
    splits: tuple[Any, Any, Any] = (data.train, data.val, data.test)
    inputs, targets = ([getattr(part, name) for part in splits] for name in ("inputs", "targets"))
    images: dict[str, dict[str, Any]] = {}
    used: set[int] = set()

    def write(part: str, place: int, rows: list[int]) -> None:
        for row in rows:
            name = names[int(targets[place][row])]
            file = folder / part / name / f"{part}-{row}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            content = png(inputs[place][row])
            file.write_bytes(content)
            entry = {"class": name, "split": part, "source": str(file)}
            entry |= {"observation": f"{part}-{row}", "sha256": hashlib.sha256(content).hexdigest()}
            images[str(file.relative_to(folder))] = entry

    files = [png(pixels) for pixels in inputs[0]]
    known = {hashlib.sha256(file).hexdigest() for file in files}  # small glyphs of two faces may be the same
    for index in range(len(names)):
        rows = (targets[0] == index).nonzero().squeeze(1)[: size.seed_images].tolist()
        used |= set(rows)
        write("train", 0, rows)
    for part, place, number in (("val", 1, size.calibration_images), ("test", 2, size.test_images)):
        hashed = [hashlib.sha256(png(pixels)).hexdigest() for pixels in inputs[place][: 3 * number]]
        new = [row for row, digest in enumerate(hashed) if digest not in known]
        known |= set(hashed)
        write(part, place, new[:number])
    content = {"format": BENCHMARK_FORMAT, "options": {}, "images": images}
    (folder / "metadata.json").write_text(json.dumps(content))
    ClassTable(tuple(names)).save(folder / "class_table.json")
    order = (
        np.random.default_rng([size.seed, 1])
        .permutation([row for row in range(len(files)) if row not in used])
        .tolist()
    )
    pool = [(files[row], int(targets[0][row])) for row in order]
    rest = order[size.rounds * size.observations :]
    return World(ClassTable(tuple(names)), pool, (inputs[0][rest], targets[0][rest]))


def read_part(folder: Path, part: str, table: ClassTable) -> tuple[Tensor, Tensor]:
    """Read the images of a part of a benchmark."""
    number = {name: i for i, name in enumerate(table.names)}
    images, targets = [], []
    for name in class_folders(folder / part):
        for path in images_below(folder / part / name):
            images.append(torch.from_numpy(np.array(Image.open(path).convert("L"))))
            targets.append(number[name])
    inputs = (torch.stack(images)[:, None].float() / 255 - MEAN) / STD
    return inputs, torch.tensor(targets)


def train_model(folder: Path, table: ClassTable, size: Size) -> Model:
    """Train on a benchmark, calibrate on its validation images, and return the finished model."""
    torch.manual_seed(size.seed)
    inputs, target = read_part(folder, "train", table)
    counts = target.bincount(minlength=len(table)).tolist()
    table = ClassTable(table.names, counts=tuple(max(1, count) for count in counts))
    spec = NetworkSpec(name="small_cnn", num_classes=len(table), input_shape=(1, 32, 32))
    network = build_network(spec)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=size.steps)
    for _ in range(size.steps):
        rows = torch.randint(len(inputs), (64,))
        moved = torch.roll(inputs[rows], tuple(torch.randint(-2, 3, (2,)).tolist()), dims=(2, 3))
        loss = nn.functional.cross_entropy(network(moved), target[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    network.eval()
    score_map = ScoreMap(len(table), contains=PriorRecord.training(table.class_counts))
    inputs, target = read_part(folder, "val", table)
    scores = Model.from_parts(network, table, score_map=score_map).scores(inputs).clone()
    predictors = {"conformal90": Conformal(coverage=COVERAGE).calibrate(scores, target), "top5": TopK(5)}
    return Model.from_parts(
        network,
        table,
        preprocessing=PREPARE,
        score_map=score_map,
        predictors=predictors,
        spec=spec,
        about={"name": "glyphs"},
    )


@contextmanager
def serving(place: Releases, store: Path) -> Iterator[str]:
    """Serve the current release at a free port, and follow it; gives the address."""
    desk = FeedbackDesk(store)

    def make() -> Served:
        release = place.current()
        assert release is not None
        folder = place.model_path(release)
        service = Service(Model.load(folder), source=folder, feedback=desk)
        return Served(service, make_app(service))

    def version() -> str:
        release = place.current()
        return "" if release is None else str(release.number)

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    following = Following(version, make, close=desk.close, every=0.1)
    server = uvicorn.Server(
        uvicorn.Config(following, log_config=None, access_log=False, timeout_keep_alive=60)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)
        listening.close()


def post(client: httpx.Client, path: str, files: Any = None, json: Any = None) -> Any:
    """Post a form or JSON; again, if the connection breaks: an answer with the same id is recorded once."""
    for _ in range(5):
        with suppress(httpx.TransportError):
            return client.post(path, files=files, json=json).raise_for_status().json()
    raise RuntimeError(f"the server does not answer to {path}")


def ask_people(
    address: str, photos: list[tuple[bytes, int]], people: list[Person], world: World, votes: int, rng: Any
) -> dict[str, str]:
    """Show each photo to some people, and post what they say; who is first gives the photo.

    Returns:
        The true class of each observation, by id.
    """
    number = {id: i for i, id in enumerate(world.table.ids)}
    activity = 1 / np.arange(1, len(people) + 1) ** 0.5
    activity = activity[rng.permutation(len(people))]
    chosen = [rng.choice(len(people), votes, replace=False, p=activity / activity.sum()) for _ in photos]
    seeds = rng.integers(2**31, size=len(photos))

    def ask(place: int) -> tuple[str, str]:
        photo, true = photos[place]
        own = np.random.default_rng(seeds[place])
        with httpx.Client(base_url=address, timeout=120) as client:
            files = {"images": ("photo.png", photo, "image/png")}
            answer = post(client, "/v1/identify?predictor=conformal90&receipt=true", files)
            shown = [
                (number[found["id"]], found["probability"])
                for found in answer["candidates"]
                if found["in_set"]
            ]
            shown = shown or [
                (number[found["id"]], found["probability"]) for found in answer["candidates"][:5]
            ]
            made = ""
            for who in chosen[place]:
                verb, label = people[who].answer(true, shown, len(number), own)
                event = {"verb": verb, "person": people[who].name}
                event |= {"id": f"{hashlib.sha256(photo).hexdigest()}-{people[who].name}"}
                event |= {"class_id": world.table.ids[label]} if label >= 0 else {}
                if made:
                    post(client, f"/v1/observations/{made}/votes", json=event)
                else:
                    event |= {"receipt": answer["receipt"], "consent": True}
                    form = {"event": ("event", json.dumps(event).encode(), "application/json")}
                    made = post(client, "/v1/feedback", form | files)["observation"]
        return made, world.table.ids[true]

    with ThreadPoolExecutor(8) as clients:
        return dict(clients.map(ask, range(len(photos))))


def grow(store: Path, folder: Path, first: Path, rule: str, truth: dict[str, str]) -> dict[str, float]:
    """Make the next benchmark from the first one and all votes; return what the votes are worth."""
    exported = collect_votes(read_events(store))
    names = ("item", "user", "label", "author")
    columns = [[getattr(vote, name) for vote in exported.votes] for name in names]
    options: dict[str, Any] = {"rule": rule, "theta": 2.0, "min_agreement": 0.5, "min_voters": 1}
    labels = aggregate_votes(*columns, **options)
    folder.mkdir(parents=True)
    write_votes(folder / "votes.csv", exported.votes)
    write_photos(folder / "photos.csv", exported.photos, store)
    files = {"votes": folder / "votes.csv", "images": folder / "photos.csv"}
    # calibration images never come from people's answers: no new photo is held out
    apply_plan(plan_growth(first, **files, held_out=0.0, **options), folder / "data")
    valid = dict(zip(labels.items[labels.valid].tolist(), labels.labels[labels.valid].tolist(), strict=True))
    right = [truth[item] == label for item, label in valid.items()]
    return {"valid": len(valid), "right": sum(right) / max(1, len(right)), "items": len(labels.items)}


def hashes(folder: Path) -> set[str]:
    """Return the SHA-256 of all images below a folder."""
    return {hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*.png")}


def measure(model: Model, frozen: Path) -> dict[str, float]:
    """Return top-5, macro top-5 and coverage on the frozen test images."""
    results = look_at(model, read_frozen_images(frozen)).results
    top, sets = results.scores.topk[5], results.sets["conformal90"]
    found = {"top5": top.micro.value, "macro top5": top.macro.value, "coverage": sets.coverage.micro.value}
    found |= {"top1": results.scores.topk[1].micro.value, "size": sets.size.micro.value}
    return {name: float(value or 0.0) for name, value in found.items()}


def run_loop(size: Size, folder: Path, world: World, first: Path, rule: str) -> list[dict[str, Any]]:
    """Run all rounds with one rule of votes; return what each brought."""
    rng = np.random.default_rng([size.seed, 7])
    people, truth = make_people(size, rng), {}
    place, store = Releases(folder / "releases"), folder / "feedback"
    model = train_model(first, world.table, size)
    model.save(folder / "model-0")
    place.add(folder / "model-0", who="loop", data=str(first), frozen=str(first))
    frozen = hashes(first / "test")
    rounds = [{"round": 0, "valid": 0, "right": 1.0, "items": 0, "released": True, **measure(model, first)}]
    with serving(place, store) as address:
        for number in range(1, size.rounds + 1):
            photos = world.pool[(number - 1) * size.observations : number * size.observations]
            truth |= ask_people(address, photos, people, world, size.votes, rng)
            labels = grow(store, folder / f"round-{number}", first, rule, truth)
            data = folder / f"round-{number}" / "data"
            assert hashes(data / "test") == frozen and not frozen & (
                hashes(data / "train") | hashes(data / "val")
            )
            model = train_model(data, world.table, size)
            release = place.current()
            assert release is not None
            verdict = judge_release(model, Model.load(place.model_path(release)), first)
            if verdict.passed:
                model.save(folder / f"model-{number}")
                checks = {check.name: check.words for check in verdict.checks}
                place.add(
                    folder / f"model-{number}", who="loop", data=str(data), frozen=str(first), checks=checks
                )
                _wait_for(address, place)
            found = {"round": number, **labels, "released": verdict.passed, **measure(model, first)}
            found["failed"] = [check.name for check in verdict.failed]
            rounds.append(found)
            print(rule, {k: round(v, 3) if isinstance(v, float) else v for k, v in found.items()}, flush=True)
    return rounds


def _wait_for(address: str, place: Releases) -> None:
    """Wait until the server has the new release."""
    release = place.current()
    assert release is not None
    for _ in range(600):
        if httpx.get(f"{address}/v1/model", timeout=60).json()["version"] == release.version:
            return
        time.sleep(0.05)
    raise RuntimeError("the server does not follow the release")


def thresholds(
    model: Model, world: World, seed: int, replies: int = 5000
) -> dict[str, list[tuple[int, float]]]:
    """Follow the coverage of thresholds that learn from confirmed lists.

    The true class is seen only if it was listed. Three ways: the semi-bandit rule, the adapting rule, and the
    naive one, which takes the conformal quantile of the last 500 confirmed scores. The coverage is that of
    the threshold over all rows of the stream; for the adapting rule, which promises no more, the share of
    hits so far.
    """
    rows, target = world.stream
    scores = torch.cat([model.scores((part.float() / 255 - MEAN) / STD) for part in rows.split(500)])
    strange = 1 - model.probabilities(scores).gather(1, target[:, None]).squeeze(1).double()
    drawn = torch.randint(len(strange), (replies,), generator=torch.Generator().manual_seed(seed))
    shrinking, adapting = ShrinkingThreshold(coverage=COVERAGE), AdaptingThreshold(coverage=COVERAGE)
    start = float(strange.quantile(0.95))  # a first threshold from labeled rows
    naive, seen = start, []
    found: dict[str, list[tuple[int, float]]] = {"semi-bandit": [], "adapting": [], "naive": []}
    for turn, row in enumerate(drawn.tolist()):
        score = float(strange[row])
        shrinking.observe(score if score <= shrinking.threshold else None)
        adapting.observe(hit=score <= adapting.threshold)
        if score <= naive:
            seen.append(score)
            last = torch.tensor(seen[-500:], dtype=torch.float64)
            if len(last) >= 50:
                rank = min(len(last), int(np.ceil((len(last) + 1) * COVERAGE)))
                naive = float(last.sort().values[rank - 1])
        if turn % 50 == 49:
            for name, threshold in (("semi-bandit", shrinking.threshold), ("naive", naive)):
                found[name].append((turn + 1, float((strange <= threshold).double().mean())))
            found["adapting"].append((turn + 1, 1 - adapting.misses / adapting.rounds))
    return found


def draw(
    arms: dict[str, list[dict[str, Any]]], curves: dict[str, list[tuple[int, float]]], path: Path
) -> None:
    """Draw rounds against what they brought, and the coverage of the thresholds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(11, 6), layout="constrained")
    panels = ("top5", "macro top5", "coverage", "valid", "right")
    words = (
        "top-5",
        "top-5, mean over classes",
        "coverage, 90 % promised",
        "valid labels",
        "valid labels that are right",
    )
    for place, name, title in zip(axes.flat, panels, words, strict=False):
        for arm, rounds in arms.items():
            scale = 1 if name == "valid" else 100
            place.plot(
                [one["round"] for one in rounds], [scale * one[name] for one in rounds], "o-", ms=3, label=arm
            )
        place.set_title(title, fontsize=10)
        place.set_xlabel("round")
        if name == "coverage":
            place.axhline(100 * COVERAGE, color="gray", lw=0.8, ls="--")
    last = axes.flat[5]
    for name, points in curves.items():
        last.plot([turn for turn, _ in points], [100 * share for _, share in points], label=name)
    last.axhline(100 * COVERAGE, color="gray", lw=0.8, ls="--")
    last.set_title("coverage, from confirmed lists alone", fontsize=10)
    last.set_xlabel("replies")
    axes.flat[0].legend(fontsize=8)
    last.legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the loop with each rule of votes, and print and draw what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for all files; a temporary one if left out")
    parser.add_argument("--figure", type=Path, help="file for the figure (.svg)")
    parser.add_argument("--results", type=Path, help="file for the numbers (.json)")
    parser.add_argument("--seed", type=int, default=0, help="of people, photos and training")
    parser.add_argument("--short", action="store_true", help="two rounds of a small version")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    size = replace(SHORT if options.short else Size(), seed=options.seed)
    folder = options.out or Path(tempfile.mkdtemp())
    world = make_world(size, folder / "first")
    arms = {
        name: run_loop(size, folder / rule, world, folder / "first", rule)
        for name, rule in (
            ("confirmed by others", "confirmed"),
            ("published rule", "adaptive"),
            ("one vote each", "majority"),
        )
    }
    last = Releases(folder / "confirmed" / "releases")
    release = last.current()
    assert release is not None
    curves = thresholds(Model.load(last.model_path(release)), world, size.seed)
    found = {"rounds": arms, "thresholds": curves}
    if options.figure is not None:
        draw(arms, curves, options.figure)
    if options.results is not None:
        options.results.write_text(json.dumps(found, indent=1) + "\n")
    for name, points in curves.items():
        shares = [100 * share for _, share in points]
        print(f"{name}: coverage {shares[-1]:.1f} % at the end, lowest {min(shares):.1f} %")
    if options.out is None:
        shutil.rmtree(folder)
    return found


if __name__ == "__main__":
    main()
