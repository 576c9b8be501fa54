"""A line of text in a corner of the notebook's page: it's in no cell's output, and in no file."""

from __future__ import annotations

import anywidget
import traitlets


class PageNote(anywidget.AnyWidget):
    """Shows `text` while it isn't empty, until it's closed. It needs no cell to be displayed in.

    A front end that doesn't know anywidget shows nothing.

    >>> PageNote(text="recorded 31 steps").text
    'recorded 31 steps'
    """

    text = traitlets.Unicode("").tag(sync=True)
    _esm = """
    const FORGOTTEN = 120000; // milliseconds after which a kernel that says nothing may be gone
    function initialize({ model }) {
      const note = document.createElement("div");
      note.className = "kvviz-progress";
      note.setAttribute("role", "status");
      note.style.cssText = "position:fixed;right:1rem;bottom:2.5rem;z-index:9999;" +
        "padding:0.4rem 0.8rem;border-radius:4px;pointer-events:none;" +
        "font:13px system-ui,sans-serif;font-variant-numeric:tabular-nums;" +
        "color:#fff;background:#333;border:1px solid #999";
      let timer;
      const show = () => {
        clearTimeout(timer);
        note.textContent = model.get("text");
        if (!note.textContent) return note.remove();
        if (!note.isConnected) document.body.append(note);
        timer = setTimeout(() => note.remove(), FORGOTTEN);
      };
      model.on("change:text", show);
      show();
      return () => { clearTimeout(timer); note.remove(); };
    }
    export default { initialize };
    """
