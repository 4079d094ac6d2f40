"""Hooks: functions of the program that are called with every decision. They see decisions and never change them."""

from __future__ import annotations

from ..stores.base import StoreCall
from .events import (
    ChangeHook,
    ChangeKind,
    Event,
    Failure,
    FailureHook,
    Hook,
    LimitChange,
    ObservedRequest,
    Result,
    failures,
)
from .refusal_log import log_refusals

__all__ = [
    "ChangeHook",
    "ChangeKind",
    "Event",
    "Failure",
    "FailureHook",
    "Hook",
    "LimitChange",
    "ObservedRequest",
    "Result",
    "StoreCall",
    "failures",
    "log_refusals",
]
