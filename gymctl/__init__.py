"""Start any agent environment on any launch method, reset it, let an agent act, get a verdict."""

__version__ = "0.1.0"
