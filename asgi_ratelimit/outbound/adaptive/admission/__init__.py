"""What else a request that the model admits has to wait for: declared quotas, and what other processes know."""

from __future__ import annotations

from typing import TypeAlias

from ....errors import ConfigurationError
from ....limiter import Limiter
from ....stores.documents import documents
from ....waiting import SlotWaiter
from .local_admission import LocalAdmission
from .locked_model import LockedModel
from .route_publisher import Publisher
from .shared_admission import SharedAdmission
from .shared_quotas import NAME

Admission: TypeAlias = LocalAdmission | SharedAdmission


def admission_over(locked: LockedModel, slots: SlotWaiter, limiter: Limiter | None) -> Admission:
    """The admission over a store; it shares what is learned if other processes use the store and it has documents."""
    if not slots.store.in_process:
        try:
            publisher = Publisher(locked, slots, documents(slots.store))
        except ConfigurationError:
            pass
        else:
            return SharedAdmission(locked, slots, limiter, publisher)
    return LocalAdmission(locked, slots, limiter, NAME)


__all__ = ["NAME", "Admission", "LockedModel", "admission_over"]
