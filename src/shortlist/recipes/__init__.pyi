from .annealing import annealed_options as annealed_options
from .build import (
    build_data as build_data,
    build_loss as build_loss,
    build_model as build_model,
    build_optimizer as build_optimizer,
    learning_rate_factor as learning_rate_factor,
    network_spec as network_spec,
    prepare_second_stage as prepare_second_stage,
)
from .calibration import calibrate_predictors as calibrate_predictors
from .code import (
    check_code as check_code,
    code_in_recipe as code_in_recipe,
    own_metrics as own_metrics,
)
from .content import (
    CALIBRATED_KEYS as CALIBRATED_KEYS,
    differing_keys as differing_keys,
    first_stage_content as first_stage_content,
    flat_content as flat_content,
    recipe_content as recipe_content,
    recipe_hash as recipe_hash,
    training_hash as training_hash,
)
from .default_sets import (
    DEFAULT_NAMES as DEFAULT_NAMES,
    complete_recipe as complete_recipe,
    without_default_predictors as without_default_predictors,
)
from .loss_use import (
    TRAINABLE_LOSSES as TRAINABLE_LOSSES,
    find_loss as find_loss,
    is_own as is_own,
    signature_of as signature_of,
)
from .parts import Parts as Parts, build_parts as build_parts
from .places import moved as moved, with_absolute_places as with_absolute_places
from .recipe import (
    Recipe as Recipe,
    RecipeError as RecipeError,
    load_recipe as load_recipe,
    load_variant as load_variant,
    make_recipe as make_recipe,
    read_setting as read_setting,
    save_recipe as save_recipe,
)
from .score_rules import (
    declared_maps as declared_maps,
    fits_class_shifts as fits_class_shifts,
    is_fitted as is_fitted,
    loss_meaning as loss_meaning,
    scales_weights as scales_weights,
    trains_balanced as trains_balanced,
    validation_is_test as validation_is_test,
)
from .sections import PredictorSection as PredictorSection
from .starter import (
    Features as Features,
    Found as Found,
    explain as explain,
    look_at as look_at,
    starter_recipe as starter_recipe,
)
