"""`python -m gymctl` is `gymctl`."""

from gymctl.cli import main

main()
