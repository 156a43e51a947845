"""The calendar: events and their recurrence, attendees, free and busy time, tags."""

from . import editing, guests, organizing, scheduling, viewing

__all__ = ["editing", "guests", "organizing", "scheduling", "viewing"]
