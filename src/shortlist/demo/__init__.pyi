from .figure import draw_demo as draw_demo
from .run import (
    BASE as BASE,
    METHODS as METHODS,
    demo_words as demo_words,
    run_demo as run_demo,
    table_rows as table_rows,
)
