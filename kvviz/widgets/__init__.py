"""Views to move through or to send: the stepper, the memory panel, GIFs and web pages.

May import drawing, recording's runs and squares, and the modules beside the folders.
"""
