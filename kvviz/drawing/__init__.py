"""Pictures of a recording, each with a sentence that describes it; start reading at `figures`.

It may import `kvviz.recording.square` and the top-level modules, but not torch, pyplot or a widget.
"""
