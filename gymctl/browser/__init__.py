"""A browser that belongs to an instance: a resident process drives Chromium, short-lived ones ask it over a unix socket."""
