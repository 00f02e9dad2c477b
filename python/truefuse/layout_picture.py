"""Layouts drawn: strips of who is where, as one self-contained SVG for light and dark pages."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from truefuse.layouts import BoundLayout

WIDTH, LEFT, RIGHT = 1200, 24, 24
SPAN = WIDTH - LEFT - RIGHT
STRIP = 40
MOST_BLOCKS = 1500  # More would be narrower than a pixel.
LEAST_BLOCK = 2  # pixels; narrower ones blur into one another
ZOOMED_BLOCKS = 8
MOST_TICKS = 16
MOST_RIBBONS = 600
#: Okabe and Ito's colours, told apart by colour-blind readers, and whether text on them is white.
COLOURS = (
    ("#0072b2", True), ("#e69f00", False), ("#009e73", True), ("#cc79a7", False),
    ("#56b4e9", False), ("#d55e00", True), ("#f0e442", False), ("#7b5ea7", True),
)  # fmt: skip
# Plain rules, not variables: some renderers know no var().
STYLE = """
.page { fill: #ffffff } .hole { fill: #d8dee4 } .wrong { fill: #cf222e } .right { fill: #8c959f }
text { font-family: ui-sans-serif, system-ui, "DejaVu Sans", sans-serif; font-size: 14px; fill: #1f2328 }
.mono { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 13px }
.title { font-size: 18px; font-weight: 600 } .quiet { fill: #656d76; font-size: 12px }
.block { font-size: 12px; text-anchor: middle } .light { fill: #ffffff } .dark { fill: #1f2328 }
.seam { stroke: #ffffff; stroke-width: 0.6px }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117 } .hole { fill: #30363d } .wrong { fill: #ff7b72 } .right { fill: #656d76 }
  text { fill: #e6edf3 } .quiet { fill: #9198a1 } .light { fill: #ffffff } .dark { fill: #1f2328 }
  .seam { stroke: #0d1117 }
}
""".strip()


@dataclass(frozen=True)
class Block:
    begin: int
    end: int
    segment: str | None  #: None past the end of a layout, "_" for padding.
    label: str
    same: bool = True


class Canvas:
    def __init__(self, segments: Sequence[str], own: Sequence[str] | None = None) -> None:
        """`own`: which of the segments this picture has."""
        self.colours = {
            name: COLOURS[i % len(COLOURS)]
            for i, name in enumerate(dict.fromkeys(segments))
            if own is None or name in own
        }
        self.parts: list[str] = []
        self.y = 20.0

    def text(self, text: str, style: str = "", x: float = LEFT, y: float | None = None) -> None:
        at = self.y if y is None else y
        self.parts.append(f'<text x="{x:.1f}" y="{at:.1f}" class="{style}">{escape(text)}</text>')

    def line(self, text: str, style: str = "", height: float = 22) -> None:
        self.y += height
        self.text(text, style)

    def rectangle(
        self, x: float, y: float, width: float, height: float, style: str, tip: str = ""
    ) -> None:
        title = f"<title>{escape(tip)}</title>" if tip else ""
        self.parts.append(
            f'<rect x="{x:.2f}" y="{y:.1f}" width="{max(width, 0.4):.2f}" height="{height:.1f}" '
            f"{style}>{title}</rect>"
        )

    def fill(self, segment: str | None) -> str:
        if segment in self.colours:
            return f'fill="{self.colours[segment][0]}"'
        return 'class="hole"' if segment == "_" else 'fill="none"'

    def legend(self, with_padding: bool, with_difference: bool) -> None:
        self.y += 14
        x = float(LEFT)
        entries = [(name, self.fill(name)) for name in self.colours]
        if with_padding:
            entries.append(("padding", 'class="hole"'))
        if with_difference:
            entries += [("somebody else", 'class="wrong"'), ("the same element", 'class="right"')]
        for name, style in entries:
            self.rectangle(x, self.y, 16, 16, style)
            self.text(name, "", x + 22, self.y + 13)
            x += 22 + 9 * len(name) + 24
        self.y += 20

    def strip(self, blocks: Sequence[Block], low: int, high: int, labels: bool) -> float:
        """Returns the y of its top."""
        top = self.y
        scale = SPAN / (high - low)
        for block in blocks:
            begin, end = max(block.begin, low), min(block.end, high)
            if begin >= end or block.segment is None:
                continue
            x, width = LEFT + (begin - low) * scale, (end - begin) * scale
            tip = f"{block.begin}…{block.end - 1}: {block.label}"
            seam = ' stroke="none"' if width < 4 else ""
            self.rectangle(x, top, width, STRIP, self.fill(block.segment) + seam, tip)
            if width >= 4:
                self.parts.append(
                    f'<line x1="{x:.2f}" x2="{x:.2f}" y1="{top:.1f}" y2="{top + STRIP:.1f}" class="seam"/>'
                )
            shown = _fitting(block, width, labels)
            if shown:
                ink = "light" if self.colours.get(block.segment, ("", False))[1] else "dark"
                if block.segment == "_":
                    ink = "quiet"
                self.text(shown, f"block {ink}", x + width / 2, top + STRIP / 2 + 4)
        self.y = top + STRIP
        return top

    def shares(self, blocks: Sequence[Block]) -> None:
        """Of each segment, one above the other."""
        held: dict[str, int] = {}
        for block in blocks:
            if block.segment is not None:
                held[block.segment] = held.get(block.segment, 0) + block.end - block.begin
        top, whole = self.y, sum(held.values())
        for segment, count in held.items():
            height = STRIP * count / whole
            self.rectangle(LEFT, top, SPAN, height, self.fill(segment), f"{segment}: {count:,}")
            top += height
        self.y += STRIP

    def marks(self, blocks: Sequence[Block], low: int, high: int) -> None:
        """A thin strip: who is the same, who is somebody else."""
        scale = SPAN / (high - low)
        for block in blocks:
            begin, end = max(block.begin, low), min(block.end, high)
            if begin < end:
                style = f'class="{"right" if block.same else "wrong"}"'
                self.rectangle(
                    LEFT + (begin - low) * scale, self.y, (end - begin) * scale, 8, style
                )
        self.y += 8

    def ticks(self, offsets: Sequence[int], low: int, high: int) -> None:
        self.y += 15
        last = -1e9
        for offset in offsets[:: -(-len(offsets) // MOST_TICKS)]:
            x = LEFT + (offset - low) * SPAN / (high - low)
            text = str(offset)
            if x < last or x + 7 * len(text) > WIDTH:
                continue
            self.text(text, "quiet", x)
            last = x + 7 * len(text) + 8

    def ribbons(
        self, stretches: Sequence[tuple[int, int, int, str]], sizes: tuple[int, int]
    ) -> None:
        """From (offset above, offset below, length, segment) of each stretch that moves as one."""
        height = 110
        scale = SPAN / max(sizes)
        top, bottom = self.y, self.y + height
        middle = (top + bottom) / 2
        for above, below, length, segment in stretches:
            a, b, width = LEFT + above * scale, LEFT + below * scale, length * scale
            colour = self.colours[segment][0]
            self.parts.append(
                f'<path d="M{a:.1f} {top:.1f}C{a:.1f} {middle:.1f} {b:.1f} {middle:.1f} {b:.1f} {bottom:.1f}'
                f"H{b + width:.1f}C{b + width:.1f} {middle:.1f} {a + width:.1f} {middle:.1f} {a + width:.1f} {top:.1f}"
                f'Z" fill="{colour}" fill-opacity="0.4"/>'
            )
        self.y = bottom

    def svg(self) -> str:
        height = int(self.y + 24)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}"><style>{STYLE}</style>'
            f'<rect width="{WIDTH}" height="{height}" class="page"/>'
            + "".join(self.parts)
            + "</svg>\n"
        )


def _fitting(block: Block, width: float, labels: bool) -> str:
    """The longest way to name a block that fits in it."""
    name = block.segment or ""
    choices = ["" if name == "_" else name]
    if labels:
        indices = block.label.split(",")
        shorter = [",".join(indices[:n]) + ",…]" for n in range(len(indices) - 1, 0, -1)]
        choices = [block.label, *shorter, *choices]
    return next((text for text in choices if len(text) * 7.2 + 6 <= width), "")


def show(bound: BoundLayout, beside: Sequence[BoundLayout] = ()) -> str:
    """One layout: the whole of it, and its beginning with every element named. In pictures that are shown
    `beside` one another a name has one colour."""
    blocks = _blocks(bound.compare(bound, MOST_BLOCKS), "a")
    canvas = Canvas([name for one in beside or [bound] for name in _names(one)], _names(bound))
    _head(canvas, "Who is where", [bound], with_difference=False)
    high = min(bound.size, blocks[-1].end)
    is_fine = len(blocks) * LEAST_BLOCK > SPAN
    what = ", which take turns too often to be drawn: the share of each" if is_fine else ""
    canvas.line(f"all {bound.size:,} elements{_part(blocks, bound.size)}{what}", "quiet", 30)
    canvas.y += 8
    if is_fine:
        canvas.shares(blocks)
    else:
        canvas.strip(blocks, 0, high, labels=False)
    canvas.ticks([block.begin for block in blocks], 0, high)
    _zoom(canvas, blocks, None, 0)
    return canvas.svg()


def diff(a: BoundLayout, b: BoundLayout) -> str:
    """Two layouts of one memory, where each element of the first lies in the second, and where the
    same offset holds somebody else."""
    found = a.compare(b, MOST_BLOCKS)
    above, below = _blocks(found, "a"), _blocks(found, "b")
    canvas = Canvas(_names(a) + _names(b))
    _head(canvas, "Two layouts", [a, b], with_difference=True)
    end = max(a.size, b.size)
    high = min(end, above[-1].end)
    canvas.line("as the producer wrote it" + _part(above, end), "quiet", 30)
    canvas.y += 8
    canvas.strip(_blocks(a.compare(a, MOST_BLOCKS), "a"), 0, high, labels=False)
    stretches = _stretches(a, b) if high == end else []
    if stretches:
        canvas.ribbons(stretches, (a.size, b.size))
    else:
        canvas.y += 24
    canvas.strip(_blocks(b.compare(b, MOST_BLOCKS), "a"), 0, high, labels=False)
    canvas.y += 4
    canvas.marks(above, 0, high)
    canvas.line("as the reader takes it; below, which offsets agree", "quiet", 16)
    if found["first"] is not None:
        _zoom(canvas, above, below, found["first"])
        canvas.line(found["sentence"], "title", 34)
    else:
        canvas.line("every offset holds the same element", "title", 34)
    return canvas.svg()


def _head(
    canvas: Canvas, title: str, layouts: Sequence[BoundLayout], with_difference: bool
) -> None:
    canvas.line(title, "title", 16)
    for bound in layouts:
        canvas.line(bound.text, "mono", 24)
    sizes = {name: size for bound in layouts for name, size in bound.sizes.items()}
    canvas.line(", ".join(f"{name}={size}" for name, size in sizes.items()), "quiet", 20)
    with_padding = any(segment["padding"] for bound in layouts for segment in bound.segments)
    canvas.legend(with_padding, with_difference)


def _zoom(
    canvas: Canvas, above: Sequence[Block], below: Sequence[Block] | None, around: int
) -> None:
    """Some blocks from `around` on, with one block before, wide enough to carry their names."""
    at = next((i for i, block in enumerate(above) if block.end > around), 0)
    chosen = above[max(at - 1, 0) : max(at - 1, 0) + ZOOMED_BLOCKS]
    low, high = chosen[0].begin, chosen[-1].end
    canvas.line(f"offsets {low:,}…{high - 1:,}, enlarged", "quiet", 36)
    canvas.y += 8
    canvas.strip(above, low, high, labels=True)
    if below is not None:
        canvas.y += 4
        canvas.marks(above, low, high)
        canvas.y += 4
        canvas.strip(below, low, high, labels=True)
    canvas.ticks([block.begin for block in chosen], low, high)


def _names(bound: BoundLayout) -> list[str]:
    return [segment["name"] for segment in bound.segments if not segment["padding"]]


def _part(blocks: Sequence[Block], size: int) -> str:
    """A picture shows so many blocks and no more; it says so."""
    end = blocks[-1].end
    return "" if end >= size else f" (the first {end:,} of {size:,} elements are drawn)"


def _blocks(found: dict[str, Any], side: str) -> list[Block]:
    return [
        Block(
            run["offset"],
            run["offset"] + run["length"],
            run[f"{side}_segment"],
            run[side],
            run["same"],
        )
        for run in found["runs"]
    ]


def _stretches(a: BoundLayout, b: BoundLayout) -> list[tuple[int, int, int, str]]:
    """What moves as one from a to b; empty if that is too much to draw or to look at."""
    if max(a.size, b.size) > 1 << 20:
        return []
    try:
        index = a.index_map(b).tolist()
    except RuntimeError:  # b has a segment that a has not.
        return []
    found: list[list[int]] = []
    for below, above in enumerate(index):
        if above < 0:
            continue
        if found and found[-1][0] + found[-1][2] == above and found[-1][1] + found[-1][2] == below:
            found[-1][2] += 1
        else:
            found.append([above, below, 1])
        if len(found) > MOST_RIBBONS:
            return []
    return [
        (above, below, length, a.element_at(above).segment)
        for above, below, length in _cut_at_segments(a, found)
    ]


def _cut_at_segments(a: BoundLayout, stretches: list[list[int]]) -> list[tuple[int, int, int]]:
    """A stretch over several segments gets a ribbon for each."""
    begins = [run["offset"] for run in a.compare(a, MOST_BLOCKS)["runs"]]
    cut = []
    for above, below, length in stretches:
        inside = [0, *(b - above for b in begins if above < b < above + length), length]
        cut += [(above + low, below + low, high - low) for low, high in itertools.pairwise(inside)]
    return cut
