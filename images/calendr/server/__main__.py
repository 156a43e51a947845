"""`python -m server`: serve Calendr."""

import sys

from _web.serve import main

from .calendr import SITE

if __name__ == "__main__":
    sys.exit(main(SITE))
