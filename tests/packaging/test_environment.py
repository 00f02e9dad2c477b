"""scripts/environment.py: nothing that is installed is changed or shadowed."""

import shutil
import sys
import zipfile
from importlib.metadata import version

import pytest

import environment
from dev import Build
from environment import Environment, Failure

PYTHON = sys.executable


def write_wheel(folder, name, number, requires=()):
    module = name.replace("-", "_")
    info = f"{module}-{number}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n"
    metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    with zipfile.ZipFile(folder / f"{module}-{number}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{module}/__init__.py", "")
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        record = [f"{module}/__init__.py", f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD"]
        wheel.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in record))


@pytest.fixture
def build(tmp_path, monkeypatch):
    """A build folder of its own, and an index that holds the test's wheels alone."""
    root = tmp_path / "a b ü"
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    root.mkdir()
    monkeypatch.setattr(environment, "ROOT", root)
    monkeypatch.setattr(environment, "BUILD", root / "build")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", wheels.as_uri())  # pip splits it at spaces.
    environment.inventory.cache_clear()
    return wheels


def test_an_overlay_holds_what_is_lacking_and_nothing_else(build, monkeypatch):
    write_wheel(build, "tf-wanted", "1.0", ["tf-needed", "pluggy"])
    write_wheel(build, "tf-needed", "1.0")
    write_wheel(build, "pluggy", version("pluggy"))
    monkeypatch.setitem(environment.PACKAGES, "cli", ["tf-wanted>=1", "pytest>=1"])
    overlay = environment.overlay_for(PYTHON, "cli")
    assert {path.name for path in overlay.glob("*/__init__.py") for path in [path.parent]} == {
        "tf_wanted",
        "tf_needed",
    }
    monkeypatch.setattr(environment, "quietly", None)  # A second time nothing is run.
    assert environment.overlay_for(PYTHON, "cli") == overlay


def test_nothing_is_installed_where_nothing_is_lacking(build, monkeypatch):
    monkeypatch.setattr(environment, "quietly", None)
    monkeypatch.setitem(environment.PACKAGES, "cli", ["pytest>=1"])
    assert environment.overlay_for(PYTHON, "cli") is None


def test_a_package_that_is_too_old_is_a_sentence(build, monkeypatch):
    monkeypatch.setitem(environment.PACKAGES, "cli", ["pytest>=99.5"])
    with pytest.raises(Failure, match=rf"has pytest {version('pytest')}, and pytest>=99.5 is need"):
        environment.overlay_for(PYTHON, "cli")


def test_a_failed_install_shows_its_output_and_leaves_nothing_to_be_used(
    build, monkeypatch, capsys
):
    monkeypatch.setitem(environment.PACKAGES, "cli", ["tf-absent"])
    for _ in range(2):
        with pytest.raises(Failure, match="pip install cli failed with status 1"):
            environment.overlay_for(PYTHON, "cli")
        assert "tf-absent" in capsys.readouterr().out


def test_truefuse_is_found_first_and_overlays_last(build, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", "/of/the/user")
    chosen = Environment(PYTHON, {}, "", [tmp_path / "site-packages"])
    path = chosen.variables(tmp_path / "stage")["PYTHONPATH"]
    assert path == f"{tmp_path}/stage:/of/the/user:{tmp_path}/site-packages"


def test_a_folder_of_somebody_else_is_left_alone(build):
    theirs = environment.ROOT / ".venv"
    theirs.mkdir()
    (theirs / "file").touch()
    with pytest.raises(Failure, match="made by somebody else"):
        environment.make_venv(theirs, "2.13.0", "no torch")
    assert (theirs / "file").exists()


def test_an_unfinished_environment_is_made_again_and_a_finished_one_is_kept(build, monkeypatch):
    commands = []
    monkeypatch.setattr(environment, "quietly", lambda command, what: commands.append(what))
    folder = environment.ROOT / ".venv"
    folder.mkdir()
    (folder / "made-by-truefuse").write_text("unfinished\n")
    for _ in range(2):
        environment.make_venv(folder, "2.13.0", "no torch")
    assert commands == ["python -m venv", "pip install torch==2.13.0"]
    environment.make_venv(folder, "2.5.1", "no torch")
    assert commands[2:] == ["python -m venv", "pip install torch==2.5.1"]


def test_builds_against_another_torch_or_abi_or_by_another_compiler_do_not_mix(monkeypatch):
    def folder(torch, abi, compiler):
        monkeypatch.setattr(environment, "compiler", lambda: ([compiler], "12.2.0"))
        return Build(Environment(PYTHON, {"version": torch, "cxx11_abi": abi}, "")).folder

    cases = [("2.13.0+cpu", "1", "g++"), ("2.13.1+cpu", "1", "g++"), ("2.13.0+cpu", "0", "g++"),
             ("2.13.0+cpu", "1", "g++-11")]  # fmt: skip
    assert len({folder(*case) for case in cases}) == len(cases)


def test_a_missing_compiler_is_a_sentence(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-g++")
    with pytest.raises(Failure, match=r"no-such-g\+\+ does not run.*apt-get install g\+\+"):
        environment.compiler()


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_a_compiler_with_a_launcher_in_front(monkeypatch):
    monkeypatch.setenv("CXX", "env g++")
    command, number = environment.compiler()
    assert command == ["env", "g++"]
    assert int(number.split(".")[0]) >= 11
