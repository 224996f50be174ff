from .app_answers import import_answers as import_answers
from .desk import FeedbackDesk as FeedbackDesk
from .limits import Limits as Limits
from .on_ray import serve_on_ray as serve_on_ray
from .page import page_text as page_text, static_files as static_files
from .processes import serve_by_processes as serve_by_processes
from .server import serve as serve
from .service import Service as Service
from .source import ServiceSource as ServiceSource
