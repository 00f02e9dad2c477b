"""truefuse layout: show, diff, convert, emit, share, list."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from truefuse.usage import Command, Commands

app = typer.Typer(
    cls=Commands,
    help="Layouts: who each element is, where two differ, and what a conversion costs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SIZE = re.compile(r"([A-Za-z_]\w*)=([0-9]{1,100})", re.ASCII)  # Python reads 4300 digits at most.
#: Per segment, in a terminal; the same order as the picture's colours.
STYLES = ("blue", "yellow", "green", "magenta", "cyan", "red", "bright_yellow", "bright_magenta")

TextArgument = Annotated[
    str, typer.Argument(help='A layout, "H (q=K | k=K)", or a name (`truefuse layout list`).')
]
SizesArgument = Annotated[
    list[str] | None, typer.Argument(help="Sizes of its names: H=16 K=128 ...", show_default=False)
]
RunsOption = Annotated[int, typer.Option(help="At most so many lines.", min=1)]
PictureOption = Annotated[Path | None, typer.Option(help="Also write a picture here (.svg).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]


def refuse(sentence: str, code: int = 2) -> NoReturn:
    """As usage.refuse, but lines stay whole, so that a caret stays under its place."""
    from truefuse.terminal import Screen

    screen = Screen(sys.stderr)
    screen.console.print(screen.text(f"truefuse: {sentence}"), markup=False, soft_wrap=True)
    raise typer.Exit(code)


def _ask(call: Any, *arguments: Any) -> Any:
    """What the library refuses is a usage error here."""
    try:
        return call(*arguments)
    except RuntimeError as error:
        refuse(str(error))


def _bind(texts: list[str], sizes: list[str] | None) -> list[Any]:
    """The layouts with their sizes. Every size must be one that some layout needs, and no other."""
    from truefuse.layouts import layout

    layouts = [_ask(layout, text) for text in texts]
    names = list(dict.fromkeys(name for found in layouts for name in found.names))
    wanted = (
        f"Sizes: {' '.join(f'{name}=...' for name in names)}." if names else "It needs no sizes."
    )
    given: dict[str, int] = {}
    for text in sizes or []:
        match = SIZE.fullmatch(text)
        if match is None:
            refuse(f"'{text}' is no size. {wanted}")
        if match[1] not in names:
            refuse(f"no layout here has a size {match[1]}. {wanted}")
        if match[1] in given:
            refuse(f"{match[1]} is given twice. {wanted}")
        given[match[1]] = int(match[2])
    missing = [name for name in names if name not in given]
    if missing:
        refuse(f"the size {missing[0]} is not given. {wanted}")
    return [_ask(lambda found=found: found.bind(**given)) for found in layouts]


def _styles(*layouts: Any) -> dict[str, str]:
    names = dict.fromkeys(
        s["name"] for bound in layouts for s in bound.segments if not s["padding"]
    )
    return {name: STYLES[i % len(STYLES)] for i, name in enumerate(names)}


def _write_picture(path: Path | None, svg: Any, *layouts: Any) -> str | None:
    if path is None:
        return None
    if path.suffix != ".svg":
        refuse(f"--picture {path}: pictures are written as .svg.")
    try:
        path.write_text(svg(*layouts), encoding="utf-8")
    except OSError as error:
        refuse(f"--picture {path}: {error.strerror}. Name a file that can be written.")
    return str(path)


def _title(screen: Any, bound: Any, name: str) -> None:
    label = "" if name == bound.text else f"{name}   "
    sizes = " ".join(f"{size}={value}" for size, value in bound.sizes.items())
    screen.line(f"{label}{bound.text}   {sizes}   {bound.size:,} elements", "bold")


def _strip(screen: Any, bound: Any, styles: dict[str, str]) -> None:
    """One line of coloured letters, each the segment that is there, and each block at least one."""
    from rich.text import Text

    width = min(96, screen.console.width - 6) if screen.console.is_terminal else 96
    blocks = bound.compare(bound, width)["runs"]
    line = Text("    ")
    end = blocks[-1]["offset"] + blocks[-1]["length"]
    for block in blocks:
        count = max(1, block["length"] * width // bound.size)
        name = block["a_segment"]
        style = f"reverse {styles[name]}" if name in styles else "dim"
        line.append(("." if name == "_" else name[0]) * count, style=style)
    if end < bound.size or len(line) > width + 4:
        line.truncate(width + 4)
        line.append(" ...")
    screen.console.print(line, soft_wrap=True)


def _offsets(run: dict[str, Any]) -> str:
    last = run["offset"] + run["length"] - 1
    return str(last) if run["length"] == 1 else f"{run['offset']}…{last}"


def _axis_text(axis: dict[str, Any]) -> str:
    parts = axis["parts"]
    if len(parts) == 1:
        return f"{axis['name']}={axis['size']} stride {parts[0]['stride']}"
    pieces = ", ".join(
        f"{axis['name']}"
        + (f"/{part['divisor']}" if part["divisor"] > 1 else "")
        + (f"%{part['extent']}" if i else "")
        + f" stride {part['stride']}"
        for i, part in enumerate(parts)
    )
    return f"{axis['name']}={axis['size']} ({pieces})"


@app.command(cls=Command)
def show(
    layout: TextArgument,
    sizes: SizesArgument = None,
    runs: RunsOption = 24,
    picture: PictureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Each segment's base and strides, and who is at which offset."""
    from truefuse.layout_picture import show as svg
    from truefuse.terminal import Screen

    (bound,) = _bind([layout], sizes)
    found = _ask(bound.compare, bound, 1000)
    written = _write_picture(picture, svg, bound)
    if as_json:
        blocks = [
            {"offset": r["offset"], "length": r["length"], "who": r["a"]} for r in found["runs"]
        ]
        print(json.dumps({"text": bound.text, "sizes": bound.sizes, "size": bound.size,
                          "segments": bound.segments, "runs": blocks, "more": found["more"],
                          "picture": written}, indent=1))  # fmt: skip
        return
    screen, styles = Screen(), _styles(bound)
    _title(screen, bound, layout)
    _strip(screen, bound, styles)
    for segment in bound.segments:
        name = "padding" if segment["padding"] else segment["name"]
        axes = " · ".join(_axis_text(axis) for axis in segment["axes"])
        text = f"{name:<8} {segment['elements']:>10,} elements  base {segment['base']:<8} {axes}"
        screen.line(text, styles.get(segment["name"], "dim"), indent=2)
    _show_runs(screen, found, runs, styles, two=False)
    if written:
        screen.line(f"picture: {written}")


def _show_runs(
    screen: Any, found: dict[str, Any], most: int, styles: dict[str, str], two: bool
) -> None:
    shown = found["runs"][:most]
    wide = max(len(_offsets(run)) for run in shown)
    left = max(len(run["a"]) for run in shown)
    right = max(len(run["b"]) for run in shown)
    for run in shown:
        text = f"{_offsets(run):<{wide}}  {run['a']:<{left}}"
        if two:
            mark = "same" if run["same"] else "←  first difference"
            if not run["same"] and run["offset"] != found["first"]:
                mark = ""
            text += f"  {run['b']:<{right}}  {mark}"
        style = (
            styles.get(run["a_segment"] or "", "dim") if not two else "" if run["same"] else "red"
        )
        screen.line(text.rstrip(), style, indent=2)
    rest = len(found["runs"]) - len(shown)
    if rest or found["more"]:
        screen.line(
            f"… {'more than ' if found['more'] else ''}{rest} further lines: --runs", "dim", 2
        )


@app.command(cls=Command)
def diff(
    producer: TextArgument,
    reader: TextArgument,
    sizes: SizesArgument = None,
    runs: RunsOption = 24,
    picture: PictureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Where two layouts differ. Exit: 0 the same, 1 different."""
    from truefuse.layout_picture import diff as svg
    from truefuse.terminal import Screen

    a, b = _bind([producer, reader], sizes)
    found = _ask(a.compare, b, 1000)
    written = _write_picture(picture, svg, a, b)
    is_same = found["first"] is None and a.size == b.size
    if as_json:
        print(json.dumps({"a": a.text, "b": b.text, "sizes": {**a.sizes, **b.sizes}, **found,
                          "picture": written}, indent=1))  # fmt: skip
        raise typer.Exit(0 if is_same else 1)
    screen, styles = Screen(), _styles(a, b)
    for bound, name in ((a, producer), (b, reader)):
        _title(screen, bound, name)
        _strip(screen, bound, styles)
    screen.line(_summary(found, a, b), "green" if is_same else "bold red")
    _show_runs(screen, found, runs, styles, two=True)
    if not is_same and not found["only_b"]:
        _show_conversion(screen, _ask(a.conversion, b), 2, 1)
    if written:
        screen.line(f"picture: {written}")
    raise typer.Exit(0 if is_same else 1)


def _summary(found: dict[str, Any], a: Any, b: Any) -> str:
    size = f"same size ({a.size:,})" if a.size == b.size else f"{a.size:,} and {b.size:,} elements"
    if found["first"] is None:
        return f"{size}; every element is at the same offset"
    if found["same"] is None:
        return f"{size}; {found['sentence']}"
    moved = found["elements"] - found["same"]
    return f"{size}; {moved:,} of {found['elements']:,} elements are somebody else. {found['sentence']}"


@app.command(cls=Command)
def convert(
    source: TextArgument,
    target: TextArgument,
    sizes: SizesArgument = None,
    itemsize: Annotated[int, typer.Option(help="Bytes per element.", min=1)] = 2,
    rows: Annotated[int, typer.Option(help="Rows that are converted.", min=1)] = 1,
    as_json: JsonOption = False,
) -> None:
    """How a tensor gets from one layout to another, and what that costs."""
    from truefuse.terminal import Screen

    a, b = _bind([source, target], sizes)
    found = _ask(a.conversion, b)
    if as_json:
        print(json.dumps({"a": a.text, "b": b.text, "sizes": {**a.sizes, **b.sizes}, **vars(found),
                          "cheapest": found.cheapest(itemsize, rows)[0],
                          "bytes": found.cheapest(itemsize, rows)[1]}, indent=1))  # fmt: skip
        return
    screen = Screen()
    _title(screen, a, source)
    _title(screen, b, target)
    _show_conversion(screen, found, itemsize, rows)


def _show_conversion(screen: Any, found: Any, itemsize: int, rows: int) -> None:
    way, cost = found.cheapest(itemsize, rows)
    what = {
        "nothing": "none needed, every element is where it should be",
        "view": "a view, no memory is read",
        "expression": "one copy" if found.kind == "copy" else "copies",
        "gather": "one gather through an index map",
    }[way]
    unit = f"{rows:,} row{'s' if rows > 1 else ''} of {itemsize}-byte elements"
    costs = f": {cost / 1024:,.6g} KiB read and written for {unit}" if cost else ""
    screen.line(f"conversion: {what}{costs}")
    if found.dropped:
        screen.line(f"left out: {', '.join(found.dropped)}", indent=2)
    if found.expression:
        moved = found.expression_moves * itemsize * rows
        aside = f"   ({moved / 1024:,.6g} KiB)" if way == "gather" else ""
        screen.line(f"{found.expression}{aside}", indent=2)
    elif way == "gather":
        screen.line("no expression of views and copies does it", indent=2)
    if cost:
        screen.line("A kernel that reads the layout as it is needs none of this.", "dim", indent=2)


@app.command(cls=Command)
def emit(
    layout: TextArgument,
    lang: Annotated[str, typer.Option(help="triton, hip or python.")],
    sizes: SizesArgument = None,
    as_json: JsonOption = False,
) -> None:
    """Each segment's address expression in another language."""
    (bound,) = _bind([layout], sizes)
    code = _ask(bound.emit, lang)
    print(json.dumps({"code": code, "language": lang}) if as_json else code, end="\n" * as_json)


@app.command(cls=Command)
def share(
    layout: TextArgument,
    axis: Annotated[str, typer.Option(help="The logical axis that is shared, such as H.")],
    world: Annotated[int, typer.Option(help="Number of ranks.", min=1)],
    rank: Annotated[int, typer.Option(help="Whose share.", min=0)] = 0,
    sizes: SizesArgument = None,
    runs: RunsOption = 24,
    as_json: JsonOption = False,
) -> None:
    """A rank's share under tensor parallelism: which offsets of the whole it holds, and where."""
    from truefuse.terminal import Screen

    (bound,) = _bind([layout], sizes)
    found = _ask(bound.share, axis, rank, world)
    stretches = [dict(zip(("global", "local", "length"), s, strict=True)) for s in found.stretches]
    if as_json:
        print(json.dumps({"text": bound.text, "sizes": bound.sizes, "axis": axis, "rank": rank,
                          "world": world, "size": found.size, "first": found.first,
                          "replicated": found.replicated, "stretches": stretches,
                          "more": found.more}, indent=1))  # fmt: skip
        return
    screen = Screen()
    _title(screen, bound, layout)
    screen.line(f"rank {rank} of {world}: {axis} from {found.first} on; {found.size:,} elements")
    if found.replicated:
        screen.line(f"held whole by every rank: {', '.join(found.replicated)}", indent=2)
    for s in stretches[:runs]:
        screen.line(
            f"{s['global']}…{s['global'] + s['length'] - 1} of the whole → "
            f"{s['local']}…{s['local'] + s['length'] - 1}",
            indent=2,
        )
    if len(stretches) > runs or found.more:
        screen.line("… further lines: --runs", "dim", 2)


@app.command("list", cls=Command)
def list_named(as_json: JsonOption = False) -> None:
    """The layouts that ship."""
    from truefuse.layouts import named
    from truefuse.terminal import Screen

    found = named()
    if as_json:
        print(json.dumps(found, indent=1))
        return
    screen = Screen()
    width = max(len(entry["name"]) for entry in found)
    for entry in found:
        screen.line(f"{entry['name']:<{width}}  {entry['text']}", "bold")
        screen.line(entry["provenance"], "dim", indent=width + 2)
