"""Checks a learner's loop or cache against an uncached pass, and names the mistake it finds.

It imports `kvviz.recording` and the modules at the top of the package, and nothing else of ours.
"""
