from .fit import resume as resume, train as train
from .module import SetClassifier as SetClassifier
from .processes import is_first_process as is_first_process
from .rounded import rounded_model as rounded_model
