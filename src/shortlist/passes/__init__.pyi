from .at_place import PlaceLists as PlaceLists
from .blocks import IMAGES as IMAGES, map_rows as map_rows
from .embed import embed_images as embed_images, embedded_images as embedded_images
from .embedder import EmbedderSource as EmbedderSource
from .join import join_head as join_head
from .local import (
    Engine as Engine,
    one_thread as one_thread,
    run_local as run_local,
)
from .on_ray import run_on_ray as run_on_ray, running_ray as running_ray
from .parts import Mapped as Mapped, Part as Part, read_table as read_table
from .planning import find_shards as find_shards
from .reading import (
    evaluate_place as evaluate_place,
    evaluate_populations as evaluate_populations,
    evaluate_scores as evaluate_scores,
    place_lists as place_lists,
    read_scores as read_scores,
    recalibrated as recalibrated,
    rows_key as rows_key,
)
from .scaffold import Map as Map, Pass as Pass, Progress as Progress, usual_workers as usual_workers
from .score import (
    ModelSource as ModelSource,
    ScoreCounts as ScoreCounts,
    model_key as model_key,
    score_shards as score_shards,
)
from .shards import ShardRows as ShardRows
