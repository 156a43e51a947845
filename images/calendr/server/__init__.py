"""Calendr: a calendar of several people in the browser."""

__version__ = "0.1.0"
