"""Views to interact with or to share: the stepper, the memory panel, GIFs and web pages.

It may import drawing, `recording.run`, `recording.square` and the top-level modules.
"""
