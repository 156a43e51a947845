"""The runners, isolated ones first: `--runner auto` takes the first that boots what an image offers and is usable here."""

from __future__ import annotations

import importlib
from types import ModuleType

from gymctl.errors import NotFound, Unavailable

BUILT_IN = {"docker": "gymctl.runners.docker", "qemu": "gymctl.runners.qemu", "local": "gymctl.runners.local"}
GROUP = "gymctl.runners"


def load(name: str) -> ModuleType:
    """The module of a runner, built in or of another package; NotFound, Unavailable when it is broken."""
    where = BUILT_IN.get(name)
    if where is None:
        from importlib import metadata  # costs 10 ms, and the built-in ones need it not

        entry = next((e for e in metadata.entry_points(group=GROUP) if e.name == name), None)
        if entry is None:
            from gymctl import marked  # YAML costs 20 ms

            raise NotFound(f"no runner {name!r}{marked.near(name, available())}", hint=f"known: {', '.join(available())}")
        where = entry.value
    hint = f"reinstall the package that brings {where}"
    try:
        module = importlib.import_module(where)
    except (ImportError, SyntaxError) as error:
        raise Unavailable(f"the runner {name} cannot be loaded: {error}", hint=hint) from error
    if not hasattr(module, "SPEC"):
        raise Unavailable(f"the runner {name} cannot be loaded: {where} has no SPEC", hint=hint)
    return module


def available() -> list[str]:
    """Every runner's name, in the order they are tried."""
    from importlib import metadata

    others = sorted(e.name for e in metadata.entry_points(group=GROUP) if e.name not in BUILT_IN)
    return [*BUILT_IN, *others]

