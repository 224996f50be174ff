"""A network of one's own, with no recipe and no run: index its images, and serve it.

Run it with ``python examples/serve_own_model.py``, and open http://127.0.0.1:8000/ afterwards. What is between
the two marks is all that a model of your own needs; the rest makes a small network and some images.
"""
