"""`python -m server.packs check [PACK...]`: every fault of the packs, or their rows."""

import sys

from _web import packs

from .calendr import SITE

if __name__ == "__main__":
    sys.exit(packs.main(SITE, sys.argv[1:]))
