"""The in-guest server: eyes and hands of a desktop, and the commands run in it, over HTTP (port 5000, a token on every path).

It runs on the guest distribution's own python3 (3.10 or newer) with the distribution's packages only: libX11 and its extensions
through ctypes, python3-pil for PNG and JPEG, gir1.2-atspi-2.0 for accessibility.
"""

VERSION = "1.0"
