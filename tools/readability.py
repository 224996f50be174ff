"""Count words and numbers in the sentences of pages: how long a sentence is, and how many numbers it has.

``python tools/readability.py [FILE ...]`` prints a row for each file, by default README, tutorials, guides
and the sentences of the web page. ``--at COMMIT`` reads the files of an earlier commit.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).parents[1]
LONG = 25  # words: a sentence with more of them is counted as long


def prose(text: str) -> list[str]:
    """Return the sentences of a page in Markdown: without code, tables, headings and addresses."""
    text = re.sub(r"^---\n.*?\n---\n", "", text, flags=re.S)
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.S | re.M)
    text = re.sub(r"<[^>]+>", "", text)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^ *(\||#|:::|={3}).*$", "", text, flags=re.M)
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"^\s*([-*]|\d+\.) ", "\n", text, flags=re.M)
    sentences = []
    for paragraph in re.split(r"\n\s*\n", text):
        line = " ".join(paragraph.replace("*", "").split())
        sentences += [one for one in re.split(r"(?<=[.!?])\s+(?=[A-Z“\"(])", line) if len(one.split()) > 2]
    return sentences


def numbers_of(sentence: str) -> int:
    """Return how many numbers a sentence has; years, versions and names such as CIFAR-100 are no numbers."""
    words = re.sub(r"[A-Za-z][\w.]*-?\d[\w.-]*|\b(19|20)\d\d\b|\d+\.\d+\.\d+", "", sentence)
    return len(re.findall(r"\d[\d,]*(?:\.\d+)?", words))


def counts(sentences: list[str]) -> dict[str, float]:
    """Return the sentences, the words of a sentence, the share of long ones and the numbers of a sentence."""
    words = [len(sentence.split()) for sentence in sentences]
    return {
        "sentences": len(sentences),
        "words": mean(words) if words else 0.0,
        "long": 100 * mean(count > LONG for count in words) if words else 0.0,
        "numbers": mean(numbers_of(sentence) for sentence in sentences) if words else 0.0,
    }


def sentences_of(name: str, text: str) -> list[str]:
    """Return the sentences of a page, or of a file of the web page's words."""
    if name.endswith(".json"):
        return [sentence for words in strings_in(json.loads(text)) for sentence in prose(words)]
    return prose(text)


def strings_in(value: object) -> list[str]:
    """Return all strings of a value of JSON, without the names of its keys."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [words for each in value for words in strings_in(each)]
    return [value] if isinstance(value, str) else []


def read(name: str, commit: str | None) -> str | None:
    """Return a file of the repository, now or at a commit; nothing if it is not there."""
    if commit is None:
        return (ROOT / name).read_text("utf-8") if (ROOT / name).exists() else None
    shown = subprocess.run(["git", "show", f"{commit}:{name}"], cwd=ROOT, capture_output=True, text=True)
    return shown.stdout if shown.returncode == 0 else None


def main() -> None:
    """Print the counts of each file, and of all together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="*", help="files of the repository, default: README and docs")
    parser.add_argument("--at", metavar="COMMIT", help="read the files of this commit")
    options = parser.parse_args()
    strings = ROOT / "src/shortlist/_strings/en.json"
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), strings]
    names = options.files or [str(path.relative_to(ROOT)) for path in pages]
    texts = {name: text for name in names if (text := read(name, options.at)) is not None}
    found = {name: sentences_of(name, text) for name, text in texts.items()}
    together = [sentence for sentences in found.values() for sentence in sentences]
    print(f"{'':44s} sentences  words  over {LONG}  numbers")
    for name, sentences in [*found.items(), ("together", together)]:
        row = counts(sentences)
        cells = f"{row['sentences']:9.0f}  {row['words']:5.1f}  {row['long']:5.0f} %  {row['numbers']:7.2f}"
        print(f"{name:44s} {cells}")


if __name__ == "__main__":
    sys.exit(main())
