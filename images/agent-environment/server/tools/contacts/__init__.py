"""The address book: people and groups."""

from . import exchange, groups, people

__all__ = ["exchange", "groups", "people"]
