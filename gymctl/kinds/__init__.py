"""Kinds: how one speaks to an environment once it runs."""
