"""What holds for the words of every picture: none is cut off, and no two lie on each other."""

from matplotlib.backends.backend_agg import FigureCanvasAgg


def check_texts(figure, *, closer=2, rotated=False):
    """All texts are inside, and level ones (or all) apart, but for `closer` pixels at each side."""
    renderer, boxes = FigureCanvasAgg(figure).get_renderer(), []
    for text in (each for ax in figure.axes for each in ax.texts if each.get_text()):
        box = text.get_window_extent(renderer)
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1, text.get_text()
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1, text.get_text()
        boxes += [(text.get_text(), box)] if rotated or not text.get_rotation() else []
    for i, (one, box) in enumerate(boxes):
        for other, there in boxes[:i]:
            assert not box.padded(-closer).overlaps(there.padded(-closer)), (one, other)
    return boxes
