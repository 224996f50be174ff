from .page import write_page as write_page
from .parts import Cell as Cell, Table as Table
from .views import ExperimentView as ExperimentView
