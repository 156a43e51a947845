"""Checks of a desktop in the OSWorld format: getters fetch, metrics compare. Run as a child: `python -m gymctl.evaluators`, JSON on stdin and stdout."""
