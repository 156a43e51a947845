"""What this machine can run, proven by doing; the feature table; and the bundle of facts for a report."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from gymctl import __version__, cache, paths, runners
from gymctl.errors import GymctlError, Unavailable
from gymctl.instances import Instance
from gymctl.runner import ABILITIES, Finding, features

LEAST_FREE = 2 << 30
SECRET_WORDS = ("token", "secret", "password", "passwd", "key", "credential", "auth")


def examine(name: str) -> dict[str, Any]:
    """{usable, findings} of one runner; a runner that cannot be loaded is a finding, never a crash."""
    try:
        module = runners.load(name)
    except Unavailable as error:
        return {"usable": False, "findings": [_row(Finding("module", False, error.message, error.hint))]}
    with tempfile.TemporaryDirectory(prefix="gymctl-doctor-") as folder:
        findings = list(module.doctor(Path(folder)))
    return {"usable": all(f.ok is not False for f in findings), "findings": [_row(f) for f in findings]}


def host() -> list[dict[str, Any]]:
    """What every runner needs: state and cache can be written, and there is room."""
    return [_row(f) for f in (*_writable("state", paths.STATE_VARIABLE), *_writable("cache", paths.CACHE_VARIABLE))]


def _writable(what: str, variable: str) -> Iterator[Finding]:
    try:
        folder = paths.state_dir() if what == "state" else paths.cache_dir()
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(b"\0" * 65536)
            file.flush()
            os.fsync(file.fileno())
    except GymctlError as error:
        yield Finding(what, False, error.message, error.hint)
        return
    except OSError as error:
        yield Finding(what, False, f"cannot write in {folder}: {error.strerror}", f"set {variable} to a directory that can be written")
        return
    free = shutil.disk_usage(folder).free
    yield Finding(what, True, f"{folder} can be written")
    enough = free >= LEAST_FREE
    yield Finding(f"{what} space", enough, f"{free >> 20:,} MiB free", "" if enough else f"free some space (`gymctl cache gc --all`), or set {variable}")


def _row(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "ok": "not proven" if finding.ok is None else finding.ok}


def feature_table() -> list[dict[str, Any]]:
    """What each runner is and can do, read off its module."""
    return [_features(name, runners.load(name)) for name in runners.available() if _loads(name)]


def _loads(name: str) -> bool:
    try:
        runners.load(name)
    except Unavailable:
        return False
    return True


def _features(name: str, module: ModuleType) -> dict[str, Any]:
    spec = module.SPEC
    return {
        "name": name, "summary": spec.summary, "formats": list(spec.formats), "isolated": spec.isolated, "hosts": list(spec.hosts), "notes": spec.notes,
        "abilities": {ability: features(module)[ability] for ability in ABILITIES},
        "options": [{"name": o.name, "type": o.kind.__name__, "help": o.help, "default": o.default} for o in spec.options],
    }  # fmt: skip


def bundle(instance: Instance, target: Path) -> list[str]:
    """Write what a maintainer needs from a report into a zip, secrets removed; the names of its members."""
    record = asdict(instance)
    members = {
        "instance.json": json.dumps(without_secrets(record), indent=1),
        "versions.json": json.dumps({"gymctl": __version__, "python": platform.python_version(), "system": platform.platform(), **instance.versions}, indent=1),
        "doctor.json": json.dumps({"host": host(), instance.runner: examine(instance.runner)}, indent=1),
        "status.json": json.dumps(_status(instance), indent=1),
        "episode.jsonl": "".join(_last_lines(instance.directory / "episode.jsonl", 200)),
        "recipe.yaml": "".join(_last_lines(instance.directory / "recipe.yaml", 1000)),
        "log.txt": "".join(_log(instance)),
    }
    secrets = list(instance.secrets.values())
    temporary = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        with cache.disk_errors(target.parent), zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file:
            for name, text in members.items():
                for secret in secrets:
                    text = text.replace(secret, "[removed]")
                file.writestr(name, text)
        os.replace(temporary, target)
    except FileNotFoundError as error:
        raise Unavailable(f"there is no directory {target.parent}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return list(members)


def without_secrets(value: Any) -> Any:
    """A document with every value whose name sounds like a secret replaced."""
    if isinstance(value, dict):
        return {k: "[removed]" if v and _secret(k) else without_secrets(v) for k, v in value.items()}
    return [without_secrets(v) for v in value] if isinstance(value, list) else value


def _secret(name: str) -> bool:
    return name.lower() != "key" and any(word in name.lower() for word in SECRET_WORDS)


def _status(instance: Instance) -> dict[str, Any]:
    if instance.handle is None:
        return {"state": "never started"}
    try:
        return asdict(instance.module().status(instance.handle))
    except GymctlError as error:
        return {"state": "unknown", "detail": error.message}


def _last_lines(path: Path, count: int) -> list[str]:
    with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        return file.readlines()[-count:]
    return []


def _log(instance: Instance) -> list[str]:
    try:
        return list(instance.module().logs(instance.handle))[-5000:] if instance.handle else []
    except GymctlError as error:
        return [f"the log cannot be read: {error.message}\n"]


