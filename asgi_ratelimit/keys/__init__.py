"""Keys: they say whose bucket a request is charged to.

A key function takes the connection and returns a text, bytes, or ``None``, which means that its rule does not apply.
"""

from .base import Key, KeyFunction, combine, first_of
from .client_ip import client_ip
from .named_keys import cookie, header, path_param, state, user

__all__ = ["Key", "KeyFunction", "client_ip", "combine", "cookie", "first_of", "header", "path_param", "state", "user"]
