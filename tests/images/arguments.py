"""Arguments made from a tool's JSON Schema by chance."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

Word = Callable[[str, random.Random], str]


def arguments(schema: dict[str, Any], chance: random.Random, word: Word, defs: dict[str, Any] | None = None) -> dict[str, Any]:
    """The required arguments and half of the others; `word(name, chance)` gives the texts."""
    defs = schema.get("$defs", {}) if defs is None else defs
    required = set(schema.get("required", ()))
    chosen = {name: sub for name, sub in schema.get("properties", {}).items() if name in required or chance.random() < 0.5}
    return {name: _value(name, sub, defs, chance, word) for name, sub in chosen.items()}


def _value(name: str, schema: dict[str, Any], defs: dict[str, Any], chance: random.Random, word: Word) -> Any:
    if "$ref" in schema:
        return _value(name, defs[schema["$ref"].rsplit("/", 1)[1]], defs, chance, word)
    if "anyOf" in schema:
        return _value(name, chance.choice(schema["anyOf"]), defs, chance, word)
    if "enum" in schema:
        return chance.choice(schema["enum"])
    match schema.get("type"):
        case "object":
            return arguments(schema, chance, word, defs)
        case "array":
            return [_value(name, schema.get("items", {}), defs, chance, word) for _ in range(chance.randint(schema.get("minItems", 1), 2))]
        case "integer" | "number":
            least = math.ceil(schema.get("minimum", schema.get("exclusiveMinimum", 0)))
            return chance.randint(least, max(least, min(math.floor(schema.get("maximum", 50)), least + 50)))
        case "boolean":
            return chance.random() < 0.5
        case "null":
            return None
    formats = {"date": f"2026-03-{chance.randint(10, 28)}", "date-time": f"2026-03-{chance.randint(10, 28)}T{chance.randint(8, 18):02}:00:00"}
    return formats.get(schema.get("format", "")) or word(name, chance)
