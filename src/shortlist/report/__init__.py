"""Many runs beside each other: suites, comparisons, pages and figures.

Needs ``pip install 'shortlist[train,report]'``.
"""
