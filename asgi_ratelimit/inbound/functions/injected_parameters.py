"""The signature of a limit, which tells FastAPI what to pass to it. Its annotations are objects, not strings."""

from collections.abc import Mapping
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Protocol

from starlette.requests import HTTPConnection
from starlette.responses import Response

from ...errors import ConfigurationError
from .dependency_key import DependencyKey


class WithKeys(Protocol):
    """A limit whose keys are values of dependencies, by the names under which FastAPI passes them."""

    dependency_keys: Mapping[str, DependencyKey]


class InjectedParameters:
    """The ``__signature__`` of limits: the connection, its response, and the values of dependencies that are keys."""

    def __get__(self, limit: WithKeys | None, owner: type[Any]) -> Signature:
        if limit is None:
            return _parameters_of_class(owner)
        kind = Parameter.KEYWORD_ONLY
        keys = [Parameter(name, kind, default=key.dependency) for name, key in limit.dependency_keys.items()]
        return Signature(
            [
                Parameter("connection", kind, annotation=HTTPConnection),
                Parameter("response", kind, annotation=Response),
                *keys,
            ]
        )


class _LacksItsCall:
    """The annotation of a quota, which FastAPI reads if ``Depends(RateLimit)`` lacks the call of ``RateLimit``."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        raise ConfigurationError('Depends(RateLimit) lacks the call of RateLimit: Depends(RateLimit("5/minute"))')


def _parameters_of_class(limit: type[Any]) -> Signature:
    _, quota, *others = signature(limit.__init__).parameters.values()
    quota = quota.replace(annotation=Annotated[Any, _LacksItsCall()])
    return Signature([quota, *[each.replace(annotation=Parameter.empty) for each in others]])
