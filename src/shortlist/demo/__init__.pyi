from .answers import (
    Example as Example,
    examples as examples,
    four_answers as four_answers,
    sentences as sentences,
)
from .figure import draw_demo as draw_demo
from .losses import loss_words as loss_words, table_rows as table_rows
from .run import BASE as BASE, METHODS as METHODS, run_demo as run_demo
