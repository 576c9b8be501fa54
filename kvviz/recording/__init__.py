"""What happened in a model: the steps of a run, recorded as plain copies and counts.

It may import the rooms at the top of `kvviz`, torch and transformers, and nothing that draws,
judges or shows.
"""
