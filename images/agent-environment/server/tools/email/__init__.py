"""The mailbox: messages in threads and folders, search, drafts, labels, attachments."""

from . import organizing, reading, writing

__all__ = ["organizing", "reading", "writing"]
