"""A wheel made of an sdist, and an editable install: each works, also from a folder with a `guards.py` and a
`backends/` of its own. The core is compiled once, for the wheel: that takes ten seconds."""
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAM = """
import torch, framejit, framejit.guards.sources, framejit.backends.registry
x = torch.arange(3.0)
assert torch.equal(framejit.optimize(lambda x: torch.relu(x) + 1)(x), x + 1)
assert len(framejit.status().functions) == 1
from importlib.metadata import entry_points
[point] = entry_points(group="torch_dynamo_backends", name="framejit")
assert point.value == "framejit.backends.torch_backends:framejit"
print(framejit.__file__, framejit._native.__file__, framejit.guards.sources.__file__)
"""


AGAIN = """\
#!/bin/sh
for argument; do
    [ "$before" = -o ] && made=$argument
    [ "$argument" = -c ] && compiles=yes
    before=$argument
done
[ -n "$compiles" ] && exec cp "{objects}/framejit/native/${{made##*/framejit/native/}}" "$made"
exec {compiler} "$@"
"""
"""A compiler that has compiled these sources before."""


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The tree as a clone would have it."""
    copy = tmp_path_factory.mktemp("source") / "framejit"
    shutil.copytree(
        ROOT,
        copy,
        ignore=shutil.ignore_patterns(
            ".git", ".venv*", ".lint", "build", "dist", "*.so", "*.egg-info", "__pycache__", ".*_cache"
        ),
    )
    return copy


@pytest.fixture(scope="module")
def built(source, tmp_path_factory):
    """The folder of a wheel that was made of an sdist, as `python -m build` and pip make it."""
    run(sys.executable, "-c", "import setuptools.build_meta as b; b.build_sdist('dist')", cwd=source)
    [sdist] = source.glob("dist/*.tar.gz")
    folder = tmp_path_factory.mktemp("unpacked")
    shutil.unpack_archive(sdist, folder, filter="data")
    [unpacked] = folder.iterdir()
    run(sys.executable, "-c", "import setuptools.build_meta as b; b.build_wheel('dist')", cwd=unpacked)
    return unpacked / "dist"


@pytest.fixture
def environment(tmp_path):
    """A virtual environment that sees the packages of this one, but not framejit."""
    folder = tmp_path / "env"
    venv.create(folder, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    # this one may be virtual too, and see those of the interpreter that it was made from
    borrowed = (path for path in sys.path if Path(path).name == "site-packages")
    packages.joinpath("borrowed.pth").write_text("".join(f"{path}\n" for path in borrowed))
    return folder


@pytest.fixture
def hostile(tmp_path):
    """A user's folder with modules named like ours."""
    folder = tmp_path / "hostile"
    (folder / "backends").mkdir(parents=True)
    for name in ("guards.py", "backends/__init__.py", "native.py", "events.py"):
        (folder / name).write_text("raise ImportError('the module of the user was imported by framejit')")
    return folder


def install(environment: Path, *what: str, cwd: Path, **variables: str) -> None:
    pip = (
        sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python",
        str(environment / "bin" / "python"),
    )
    run(*pip, "install", "--no-index", "--no-deps", "--no-build-isolation", "--ignore-installed", *what,
        cwd=cwd, **variables)


def check(environment: Path, hostile: Path) -> list[Path]:
    python = str(environment / "bin" / "python")
    (hostile / "program.py").write_text(PROGRAM)
    files = run(python, "program.py", cwd=hostile).split()
    assert run(str(environment / "bin" / "framejit"), "run", "program.py", cwd=hostile).split() == files
    return [Path(file) for file in files]


def test_a_wheel_made_of_an_sdist(built, environment, hostile):
    [wheel] = built.glob("*.whl")
    install(environment, str(wheel), cwd=hostile)
    assert all(environment in file.parents for file in check(environment, hostile))


@pytest.fixture
def compiler(built, tmp_path):
    """What takes the objects that the wheel was made of."""
    [objects] = built.parent.glob("build/temp.*")
    file = tmp_path / "compiler"
    file.write_text(AGAIN.format(objects=objects, compiler=os.environ.get("CC") or sysconfig.get_config_var("CC")))
    file.chmod(0o755)
    return str(file)


def test_editable(source, compiler, environment, hostile):
    install(environment, "--editable", str(source), cwd=source, CC=compiler)
    assert all(source in file.parents for file in check(environment, hostile))
    run(str(environment / "bin" / "python"), "-c", PROGRAM, cwd=source)


def test_the_wheel_holds_what_it_should_and_nothing_else(built):
    import zipfile

    [wheel] = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {
        "framejit", "pytest_framejit.py", f"framejit-{wheel.name.split('-')[1]}.dist-info",
    }
    ours = [
        str(file.relative_to(ROOT))
        for folder in ("framejit", "guards", "backends")
        for file in ROOT.glob(f"{folder}/**/*.py")
    ]
    assert {file if file.startswith("framejit/") else f"framejit/{file}" for file in ours} <= set(names)
    assert {
        "framejit/py.typed", "framejit/_native.pyi", f"framejit/_native{sysconfig.get_config_var('EXT_SUFFIX')}",
    } <= set(names)
    assert not [name for name in names if name.endswith((".c", ".h"))]


def test_the_tree_has_no_paths_of_this_machine(source):
    for file in source.rglob("*"):
        if file.suffix in {".py", ".toml", ".md", ".c", ".h", ".pyi"} or file.name in {"Makefile", "run"}:
            assert os.path.expanduser("~") + "/" not in file.read_text(), file
