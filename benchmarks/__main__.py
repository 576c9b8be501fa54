"""Run all benchmarks, or those that are named: python -m benchmarks [NAME ...]

The exit code is 1 if one of them is over its limit.
"""

import pkgutil
import sys
from importlib import import_module

import benchmarks


def find() -> list[str]:
    """The names of all benchmarks."""
    return sorted({m.name for m in pkgutil.iter_modules(benchmarks.__path__)} - {"__main__"})


def main(names: list[str]) -> bool:
    """Run the benchmarks; return whether all of them stay within their limits."""
    if unknown := set(names) - set(find()):
        sys.exit(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(find())}")
    within = True
    for name in names or find():
        print(f"--- {name}", flush=True)
        within &= import_module(f"benchmarks.{name}").main()
    return within


if __name__ == "__main__":
    sys.exit(not main(sys.argv[1:]))
