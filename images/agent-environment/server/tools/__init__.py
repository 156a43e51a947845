"""The tool families: importing one registers its tools."""

import importlib
import importlib.util

FAMILIES = ("calendar", "email", "slack", "contacts", "crm", "filesystem", "projects", "documents", "accounting")


def load() -> None:
    """Import every family."""
    for name in FAMILIES:
        if importlib.util.find_spec(f"{__name__}.{name}"):
            importlib.import_module(f"{__name__}.{name}")
