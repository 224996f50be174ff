from .run import run_suite as run_suite
from .starter import StarterSuite as StarterSuite, starter_suite as starter_suite
from .state import SuiteState as SuiteState, last_seen_from as last_seen_from
from .status import cost_of as cost_of, current_runs as current_runs
from .suite import load_suite as load_suite
from .table import compare_suite as compare_suite, tuning_rows as tuning_rows
