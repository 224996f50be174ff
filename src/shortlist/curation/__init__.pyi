from ._ballot import AGAINST as AGAINST, PROPOSAL as PROPOSAL, in_one_spelling as in_one_spelling
from .build import apply_plan as apply_plan, plan_benchmark as plan_benchmark
from .check import check_images as check_images
from .contact_sheet import contact_sheet as contact_sheet
from .deletions import store_folder as store_folder
from .describe import (
    gini as gini,
    lorenz_curve as lorenz_curve,
    open_dataset as open_dataset,
    plot_lorenz as plot_lorenz,
)
from .grow import plan_growth as plan_growth
from .parts import read_frozen as read_frozen
from .proposals import Proposals as Proposals
from .quality import (
    KEEP_GOOD as KEEP_GOOD,
    bounds_of as bounds_of,
    opened_quality as opened_quality,
    quality_bounds as quality_bounds,
)
from .votes import (
    MACHINE as MACHINE,
    ConsensusLabels as ConsensusLabels,
    aggregate_votes as aggregate_votes,
    read_votes as read_votes,
    save_consensus as save_consensus,
    save_users as save_users,
)
