"""E-mail addresses as people write them: `amir@harbor.example`, `Amir Nassar <amir@harbor.example>`, or a known name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from email.utils import parseaddr
from typing import Annotated

from msgspec import Meta

from .lookup import person
from .registry import Context
from .store import ToolError

Recipient = Annotated[str, Meta(min_length=1, max_length=320)]
Recipients = Annotated[list[Recipient], Meta(max_length=200)]
_ADDRESS = re.compile(r"[^@\s<>,;\"()]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")


def is_address(text: str) -> bool:
    """Whether `text` is a bare address."""
    return len(text) <= 254 and _ADDRESS.fullmatch(text) is not None and ".." not in text


def address_of(ctx: Context, text: str) -> str:
    """The bare address that `text` means; ToolError invalid for a faulty one, not_found or conflict for a name nobody or several have."""
    text = text.strip()
    bare = parseaddr(text)[1] if "<" in text else text
    if "@" not in bare.removeprefix("@"):
        return person(ctx, text)
    if not is_address(bare):
        raise ToolError("invalid", f"{text!r} is no e-mail address", "email_validate_addresses and contacts_search_people help")
    return bare


def addresses(ctx: Context, texts: Iterable[str]) -> list[str]:
    """Bare addresses, each once (in any case), in order."""
    found: dict[str, str] = {}
    for text in texts:
        address = address_of(ctx, text)
        found.setdefault(address.lower(), address)
    return list(found.values())
