"""Pictures of a recording, with the sentence that says the same: `figures` and its neighbours.

It may import `kvviz.recording.square` and the top rooms, never torch, pyplot or a widget.
"""
