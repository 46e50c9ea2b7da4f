"""The import guard, against packages laid out for real and imported in a process of their own."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from autodiff._guard import SIBLINGS, PackageClash, check_imports

REPOSITORY = Path(__file__).resolve().parents[2]
CALL = "from autodiff._guard import check_imports; check_imports()"


def run(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a new interpreter that sees the standard library and `path` only."""
    head = f"import sys; sys.path[:0] = {[str(folder) for folder in path]!r}\n"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-S", "-P", "-c", head + code],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
    )


def lay_out(folder: Path, *names: str) -> Path:
    """A folder with one regular package for each name; `autodiff` gets the guard under test."""
    for name in names:
        package = folder / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        if name == "autodiff":
            text = (REPOSITORY / "autodiff" / "_guard.py").read_text(encoding="utf-8")
            (package / "_guard.py").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A clean installation of the three packages."""
    return lay_out(tmp_path / "home", "autodiff", *SIBLINGS)


def test_own_packages_pass_in_this_process() -> None:
    check_imports()


def test_clean_installation_passes(home: Path) -> None:
    done = run(CALL, home)
    assert done.returncode == 0, done.stderr


def test_nothing_is_imported(home: Path) -> None:
    done = run(CALL + "; print('catalogue' in sys.modules, 'checks' in sys.modules)", home)
    assert done.stdout.split() == ["False", "False"], done.stderr


def test_autodiff_alone_passes(tmp_path: Path) -> None:
    done = run(CALL, lay_out(tmp_path / "alone", "autodiff"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", SIBLINGS)
def test_another_package_first_on_the_path_is_named(home: Path, tmp_path: Path, name: str) -> None:
    other = lay_out(tmp_path / "other", name)
    done = run(CALL, other, home)
    assert done.returncode == 1
    assert done.stderr.rstrip().splitlines()[-3:] == [
        f"autodiff._guard.PackageClash: another package named '{name}' is installed at "
        f"{other / name}",
        f"expected {home / name}, beside autodiff",
        f"uninstall it or use a separate environment: pip uninstall {name}"
        " (a module of your own: rename it), then reinstall gradsweep",
    ]


def test_another_package_already_imported_is_named(home: Path, tmp_path: Path) -> None:
    other = lay_out(tmp_path / "other", "catalogue")
    done = run(f"import catalogue\nsys.path.remove({str(other)!r})\n" + CALL, other, home)
    assert "another package named 'catalogue'" in done.stderr
    assert str(other / "catalogue") in done.stderr


def test_plain_module_is_named(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "checks.py").write_text("")
    done = run(CALL, other, home)
    assert f"another package named 'checks' is installed at {other / 'checks.py'}" in done.stderr


def test_namespace_left_by_an_uninstall_is_named(home: Path, tmp_path: Path) -> None:
    (home / "catalogue" / "__init__.py").unlink()
    (home / "catalogue").rmdir()
    (tmp_path / "other" / "catalogue").mkdir(parents=True)
    done = run(CALL, home, tmp_path / "other")
    assert f"installed at {tmp_path / 'other' / 'catalogue'}" in done.stderr


def test_module_without_a_spec_is_judged_by_its_file(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "catalogue.py"
    code = f"import types; m = types.ModuleType('catalogue'); m.__file__ = {str(other)!r}\n"
    done = run(code + "sys.modules['catalogue'] = m\n" + CALL, home)
    assert f"installed at {other}" in done.stderr


def test_link_to_the_packages_is_no_clash(home: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    try:
        link.symlink_to(home, target_is_directory=True)
    except OSError:
        pytest.skip("no symbolic links here")
    done = run(CALL, link, home)
    assert done.returncode == 0, done.stderr


def test_error_carries_its_data_and_survives_pickling() -> None:
    clash = PackageClash("checks", Path("there"), Path("here"))
    again = pickle.loads(pickle.dumps(clash))
    assert isinstance(again, PackageClash)
    assert issubclass(PackageClash, ImportError)
    assert (again.package, again.found, again.expected) == ("checks", Path("there"), Path("here"))
    assert (again.name, again.path, str(again)) == ("checks", "there", str(clash))
