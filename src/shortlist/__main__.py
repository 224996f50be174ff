"""Run ``shortlist`` as ``python -m shortlist``."""

from shortlist.cli import main

if __name__ == "__main__":
    main()
