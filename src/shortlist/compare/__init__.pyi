from .ask import draw_mini_set as draw_mini_set, write_ask_page as write_ask_page
from .comparison import (
    Best as Best,
    Comparison as Comparison,
    compare_each as compare_each,
    compare_groups as compare_groups,
    compare_runs as compare_runs,
)
from .gate import judge_release as judge_release
from .numbers import (
    ConfusedPair as ConfusedPair,
    bin_histogram as bin_histogram,
    bin_labels as bin_labels,
    confused_pairs as confused_pairs,
    coverage_by_frequency as coverage_by_frequency,
    easy_to_hard as easy_to_hard,
    frequency_edges as frequency_edges,
    pool_reliability as pool_reliability,
    share_of as share_of,
    size_bins as size_bins,
    size_histograms as size_histograms,
)
from .person import compare_with_person as compare_with_person
from .promises import kept_words as kept_words, promises_of as promises_of, shared_promise as shared_promise
from .rows import RowReader as RowReader, top_hits as top_hits
from .significance import one_sample_t_test as one_sample_t_test, paired_t_test as paired_t_test
