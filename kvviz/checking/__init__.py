"""Checks a learner's loop or cache against an uncached pass, and names the mistake it finds.

It imports `kvviz.recording`, the modules at the top of the package and, once a verdict's picture is
looked at, `kvviz.drawing`.
"""
