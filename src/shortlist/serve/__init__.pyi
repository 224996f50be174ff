from .desk import FeedbackDesk as FeedbackDesk
from .limits import Limits as Limits
from .on_ray import serve_on_ray as serve_on_ray
from .processes import serve_by_processes as serve_by_processes
from .server import serve as serve
from .source import ServiceSource as ServiceSource
