"""The tool servers of one office behind one port: HTTP, MCP, sessions in SQLite."""

__version__ = "0.1.0"
