from .addresses import (
    Address as Address,
    TarImage as TarImage,
    absolute as absolute,
    content_of as content_of,
    folder_of as folder_of,
    full_path as full_path,
    is_address as is_address,
    readable as readable,
)
from .benchmarks import (
    BENCHMARK_FORMAT as BENCHMARK_FORMAT,
    BenchmarkImage as BenchmarkImage,
    entry_of as entry_of,
    is_benchmark as is_benchmark,
    read_benchmark as read_benchmark,
)
from .folders import (
    SPLITS as SPLITS,
    check_splits as check_splits,
    class_folders as class_folders,
    folder_names as folder_names,
    ids_by_folder as ids_by_folder,
    images_below as images_below,
    names_of_class_folders as names_of_class_folders,
    read_folder as read_folder,
    refuse_images_beside as refuse_images_beside,
    split_folders as split_folders,
)
from .labels import (
    UNKNOWN as UNKNOWN,
    class_indices as class_indices,
    classes_of_labels as classes_of_labels,
)
from .lists import (
    LAYOUT as LAYOUT,
    about_columns as about_columns,
    check_split_names as check_split_names,
    is_table as is_table,
    read_list as read_list,
)
from .read import chosen_splits as chosen_splits, image_files as image_files, read_rows as read_rows
from .rows import ABOUT as ABOUT, COLUMNS as COLUMNS, Row as Row, Rows as Rows, plain_about as plain_about
from .tars import read_tar as read_tar, tar_files as tar_files
