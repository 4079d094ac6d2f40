"""Rules: as users write them, and ready to be matched."""

from .compiled_rule import (
    CompiledRule,
    constant_quotas,
    message_quotas,
    name_of_messages,
    owned_quotas,
)
from .rule import Rule, as_methods, as_on_error, repeatable

__all__ = [
    "CompiledRule",
    "Rule",
    "as_methods",
    "as_on_error",
    "constant_quotas",
    "message_quotas",
    "name_of_messages",
    "owned_quotas",
    "repeatable",
]
