"""Slack: channels, conversations, threads, reactions, search."""

from . import channels, reading, talking

__all__ = ["channels", "reading", "talking"]
