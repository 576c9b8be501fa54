"""Run every benchmark, or those named: python -m benchmarks [NAME ...]. Exit 1 if one is over."""

import pkgutil
import sys
from importlib import import_module

import benchmarks

names = sys.argv[1:] or sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__))
within = True
for name in names:
    if name != "__main__":
        print(f"--- {name}", flush=True)
        within &= import_module(f"benchmarks.{name}").main()
raise SystemExit(0 if within else 1)
