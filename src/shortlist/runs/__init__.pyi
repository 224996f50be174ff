from .doctor import damaged_files as damaged_files, examine_run as examine_run
from .experiments import Experiment as Experiment, group_by_data as group_by_data
from .features import feature_batches as feature_batches
from .finished import read_finished as read_finished, why as why
from .first_stage import first_stage_files as first_stage_files, kept_file as kept_file
from .folder import RunFolder as RunFolder
from .groups import (
    Group as Group,
    alike_runs as alike_runs,
    find_runs as find_runs,
    group_runs as group_runs,
    read_runs as read_runs,
)
from .kept_epoch import (
    find_kept_epoch as find_kept_epoch,
    kept_epoch_of as kept_epoch_of,
    watched_metric as watched_metric,
)
from .network import (
    best_state as best_state,
    describe_model as describe_model,
    load_network as load_network,
    read_checkpoint as read_checkpoint,
)
from .populations import place_numbers as place_numbers, usual_coverage as usual_coverage
from .run import (
    Run as Run,
    RunError as RunError,
    file_identity as file_identity,
    results_file as results_file,
)
from .scoring import (
    calibrate_again as calibrate_again,
    calibrate_run as calibrate_run,
    check_not_diverged as check_not_diverged,
    check_room_for_scores as check_room_for_scores,
    evaluate_run as evaluate_run,
    make_model as make_model,
    score_run as score_run,
    scored_parts as scored_parts,
    with_label_sets as with_label_sets,
)
