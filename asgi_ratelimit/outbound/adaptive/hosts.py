"""The hosts that requests go to, and their routes, sections and buckets; those that are not used are forgotten.

Times are microseconds. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TypeVar

from ...headers import ServerLimit
from ...profiles import Profile
from ...quotas import SECOND_US
from .hidden import hidden_buckets
from .queued_requests import Call, Host, Route, Section
from .server_buckets import PioneerBucket, ReportedBucket

MAX_HOSTS = 1_000
MAX_ROUTES = 10_000
"""The most routes and buckets of a host; beyond that, those that were not used for the longest time are forgotten."""

FORGET_AFTER_US = 600 * SECOND_US
"""A route that was not used for this long is forgotten."""

T = TypeVar("T")


class Hosts:
    """All hosts; their answers are read by ``profile``."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._hosts: OrderedDict[str, Host] = OrderedDict()

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts.values())

    def host(self, name: str, now_us: float) -> Host:
        """The host of this name."""
        host = self._hosts.get(name)
        if host is None:
            everything = PioneerBucket("everything")
            host = self._hosts[name] = Host(name, self._profile, everything, hidden_buckets(self._profile))
            if not host.has_routes:
                everything.probe(now_us)
            _forget(self._hosts, MAX_HOSTS, lambda each: not any(route.queue for route in each.routes.values()))
        self._hosts.move_to_end(name)
        return host

    def route(self, host: Host, method: str, path: str, now_us: float) -> Route:
        """The route of a request to a host."""
        key = host.profile.routes.route(method, path)
        route = host.routes.get(key)
        if route is None:
            pioneer_bucket = PioneerBucket(key)
            pioneer_bucket.probe(now_us)
            route = host.routes[key] = Route(key, self._section(host, path, now_us), pioneer_bucket, used_us=now_us)
            old_us = now_us - FORGET_AFTER_US
            _forget(host.routes, MAX_ROUTES, lambda each: not each.queue and each.pioneer_bucket.is_idle(now_us))
            _forget(
                host.routes,
                0,
                lambda each: each.used_us < old_us and not each.queue and each.pioneer_bucket.is_idle(now_us),
            )
        host.routes.move_to_end(key)
        return route

    def _section(self, host: Host, path: str, now_us: float) -> Section:
        """The section of a path. If the profile does not distinguish routes, those that begin alike share one."""
        if host.has_routes:
            return Section(PioneerBucket("section"))
        name = path.strip("/").partition("/")[0][:64]
        section = host.sections.get(name)
        if section is None:
            section = Section(PioneerBucket(f"/{name}"))
            section.pioneer_bucket.probe(now_us)
            if len(host.sections) < MAX_HOSTS:
                host.sections[name] = section
        return section

    def bucket(self, call: Call, limit: ServerLimit, now_us: float) -> ReportedBucket:
        """The bucket that an answer reports: by its name, and by the path if the profile says so."""
        host = call.host
        key = f"{limit.name} at {limit.limit}"
        if limit.bucket is not None:
            key = " ".join(filter(None, (limit.bucket, limit.name, _major(call))))
        elif host.has_routes:
            key = f"{key} of {call.route.key}"
        return self.named(host, key, now_us)

    def named(self, host: Host, key: str, now_us: float) -> ReportedBucket:
        """The bucket of this name. One that was forgotten is found again if a route still has it."""
        bucket = host.buckets.get(key)
        if bucket is None:
            bucket = host.living.get(key) or self._new_bucket(host, key, now_us)
            host.buckets[key] = bucket
        host.buckets.move_to_end(key)
        return bucket

    def _new_bucket(self, host: Host, key: str, now_us: float) -> ReportedBucket:
        bucket = host.buckets[key] = host.living[key] = ReportedBucket(key)
        bucket.probe(now_us)
        _forget(host.buckets, MAX_ROUTES, lambda each: not each.waiting)
        _forget(host.buckets, 0, lambda each: each is not bucket and each.is_idle(now_us))
        return bucket

    def recognise(self, host: Host, profile_name: str) -> None:
        """Note that the answers are those of an API: from now on, its profile distinguishes routes."""
        if profile_name != host.profile.name:
            host.shared = ()
            host.profile = next((each for each in self._profile.candidates if each.name == profile_name), host.profile)


def _major(call: Call) -> str:
    """The part of a request's path that is added to the names of its buckets."""
    route, routes = call.route, call.host.profile.routes
    if route.majors_by is not routes:
        route.majors_by, route.major = routes, routes.major_parameters(call.path)
    return route.major


def _forget(items: OrderedDict[str, T], most: int, is_forgotten: Callable[[T], bool]) -> None:
    """Forget the oldest items above ``most``, a few at a time; items that may not be forgotten become the newest."""
    for key in [key for _, key in zip(range(4), items)] if len(items) > most else ():
        if is_forgotten(items[key]):
            del items[key]
        elif most:
            items.move_to_end(key)
