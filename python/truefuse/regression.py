"""Two reports of one case, for use in CI: what was accepted stays accepted, and no slower.

A time has regressed if the candidate's median is slower than before by more than the threshold and by
more than the noise that both runs measured in themselves, and it has become so beside the baselines of the
same runs too: where these have become as much slower, it is the machine that has. Reports of other devices
or other versions of PyTorch are not comparable in time; their gates are.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any


class Unreadable(Exception):
    """Not a report; the text is for the user."""


def read(path: Path) -> dict[str, Any]:
    """Raises Unreadable."""
    from truefuse.report import SCHEMA_VERSION

    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{path} is no JSON: {error}.") from error
    if not isinstance(data, dict) or not {"gates", "verdict", "environment"} <= data.keys():
        raise Unreadable(f"{path} is no report of `truefuse check`.")
    if data.get("schema_version") != SCHEMA_VERSION:
        raise Unreadable(
            f"{path} has schema version {data.get('schema_version')}; this tool reads "
            f"{SCHEMA_VERSION}. Run the check again."
        )
    try:
        compare(data, data, threshold=0.0)  # asks for all that will be asked
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise Unreadable(
            f"{path} is a damaged report ({type(error).__name__}: {error}). Run the check again."
        ) from error
    return data


def compare(old: dict[str, Any], new: dict[str, Any], threshold: float) -> dict[str, Any]:
    """{"verdict": OK, REGRESSION or UNKNOWN, "problems", "unknown", "times"}."""
    problems, unknown, times = [], [], []
    if (old["case"], old["device"]) != (new["case"], new["device"]):
        unknown.append(
            f"{old['case']} on {old['device']} and {new['case']} on {new['device']} are two things"
        )
    before = {gate["gate"]: gate for gate in old["gates"]}
    for gate in new["gates"]:
        was = before.get(gate["gate"], {}).get("status")
        if gate["status"] == "FAIL" and was != "FAIL":
            problems.append(f"gate {gate['gate']}: {was or 'new'} -> FAIL: {gate['summary']}")
        elif was == "PASS" and gate["status"] in ("UNKNOWN", "SKIP"):
            unknown.append(f"gate {gate['gate']}: PASS -> {gate['status']}: {gate['summary']}")
    missing = before.keys() - {gate["gate"] for gate in new["gates"]}
    unknown += [f"gate {name} did not run" for name in sorted(missing)]
    if "performance" in old and "performance" in new:
        different = _elsewhere(old, new)
        if different:
            unknown.append(f"times are not comparable: {different}")
        else:
            times = _times(old["performance"], new["performance"], threshold)
            unknown += [
                f"{name} is not timed any more"
                for name in _shapes(old["performance"])
                if name not in _shapes(new["performance"])
            ]
            problems += [row["text"] for row in times if row["regressed"]]
            unknown += [
                f"{row['text']}: so are the baselines; the machine is slower. Run both checks again."
                for row in times
                if row["machine"]
            ]
    elif "performance" in old:
        problems.append("there was a speed figure and there is none now")
    verdict = "REGRESSION" if problems else "UNKNOWN" if unknown else "OK"
    return {"verdict": verdict, "problems": problems, "unknown": unknown, "times": times}


def _elsewhere(old: dict[str, Any], new: dict[str, Any]) -> str:
    for what, key in (
        ("device", lambda e: e["device"]["name"]),
        ("torch", lambda e: e["torch"]),
        ("cores", lambda e: e["cpu"]["cores"]),
    ):
        was, now = key(old["environment"]), key(new["environment"])
        if was != now:
            return f"{what} was {was} and is {now}"
    return ""


def _shapes(performance: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By what was timed, in words."""
    return {
        f"{' × '.join(map(str, s['size']))} {s['dtype']} {s['mode']}": s
        for s in performance["shapes"]
    }


def _times(old: dict[str, Any], new: dict[str, Any], threshold: float) -> list[dict[str, Any]]:
    before, rows = _shapes(old), []
    for key, shape in _shapes(new).items():
        if key not in before:
            continue
        was, now = (one["candidate"]["median_ms"] for one in (before[key], shape))
        noise = math.hypot(before[key]["noise"]["floor"], shape["noise"]["floor"])
        change = now / was - 1
        least = max(noise, math.log1p(threshold))
        slower = math.log(now / was) > least
        beside = [math.log(now / was / ratio) for ratio in _baselines(before[key], shape)]
        machine = slower and bool(beside) and max(beside) <= least
        rows.append(
            {
                "text": f"{key}: {was:.4g} -> {now:.4g} ms "
                f"({change:+.1%}, noise ±{math.expm1(noise):.1%})",
                "change": change,
                "regressed": slower and not machine,
                "machine": machine,
            }
        )
    return rows


def _baselines(old: dict[str, Any], new: dict[str, Any]) -> list[float]:
    """How much longer those take that both have."""
    before = {one["name"]: one["median_ms"] for one in old["baselines"]}
    return [
        one["median_ms"] / before[one["name"]] for one in new["baselines"] if one["name"] in before
    ]


def show(found: dict[str, Any], screen: Any) -> None:
    for row in found["times"]:
        screen.line(row["text"], "bold red" if row["regressed"] else "")
    for text in found["problems"]:
        if text not in [row["text"] for row in found["times"]]:
            screen.line(text, "bold red")
    for text in found["unknown"]:
        screen.line(text, "bold yellow")
    screen.line(found["verdict"], "bold green" if found["verdict"] == "OK" else "bold red")
