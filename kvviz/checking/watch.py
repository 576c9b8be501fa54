"""A learner's cache class, with an eye on its `get`, `update` and `reset`."""

from __future__ import annotations


def watched_class(cache_class, owner):
    """A subclass that tells `owner.trace`, if there is one, of each `get`, `update` and `reset`."""

    def telling(name):
        def method(self, *args, **kwargs):
            call = getattr(super(kind, self), name)
            if owner.trace is None:
                return call(*args, **kwargs)
            return owner.trace.call(self, name, call, args, kwargs)

        return method

    methods = {
        name: telling(name) for name in ("get", "update", "reset") if hasattr(cache_class, name)
    }
    try:
        kind = type(cache_class)(cache_class.__name__, (cache_class,), methods)
    except Exception:  # a class that can't be extended is watched at the forge alone
        return cache_class
    return kind
