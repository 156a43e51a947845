"""The tool families: importing one registers its tools."""

import importlib

FAMILIES = ("calendar", "email", "slack", "contacts", "crm", "filesystem", "projects", "documents", "accounting")


def load() -> None:
    """Import every family."""
    for name in FAMILIES:
        importlib.import_module(f"{__name__}.{name}")
