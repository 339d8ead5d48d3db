"""The public names of the SDK, and its environments under Gymnasium's names."""

import subprocess
import sys

import gymnasium
import pytest

import loomrl.gym
from loomrl.gym.namespace import expose, read_version


def python(script):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("name", loomrl.gym.__all__)
def test_every_public_name_can_be_fetched(name):
    assert getattr(loomrl.gym, name).__name__ == name


def test_a_name_that_is_not_there_is_answered_with_those_that_are():
    with pytest.raises(AttributeError, match="LoomRLGym"):
        loomrl.gym.Nonsense  # noqa: B018


def test_importing_the_sdk_loads_no_heavy_package_and_no_environment():
    loaded = python(
        "import sys, loomrl.gym; print([m for m in ('torch', 'ray', 'sqlalchemy', 'envs') if m in sys.modules])"
    )
    assert loaded == "[]"


def test_importing_the_sdk_makes_what_is_announced_known_to_gymnasium():
    assert python("import loomrl.gym, gymnasium; print('loomrl/Math-v1' in gymnasium.registry)") == "True"


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("from shop.deep.cart import Cart as Basket\nraise RuntimeError")
    (tmp_path / "shop" / "deep").mkdir()
    (tmp_path / "shop" / "deep" / "cart.py").write_text('class Cart:\n    name = "Cart"\n    version: str = "3.4.5"\n')
    (tmp_path / "single.py").write_text('class Plain:\n    version = "2.0"\nclass Bare:\n    pass\n')
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ("entry_point", "version"),
    [
        ("shop.deep.cart:Cart", "3.4.5"),
        ("shop:Basket", "3.4.5"),
        ("single:Plain", "2.0"),
        ("single:Bare", None),
        ("single:Missing", None),
        ("no_such_package.module:Class", None),
    ],
)
def test_a_version_is_read_without_importing_anything(package, entry_point, version):
    assert read_version(entry_point) == version
    assert "shop" not in sys.modules


def test_exposing_twice_keeps_the_first():
    first = expose("Twice", "4.1.0")
    spec = gymnasium.spec(first)
    assert (first, expose("Twice", "4.2.0")) == ("loomrl/Twice-v4", "loomrl/Twice-v4")
    assert gymnasium.spec(first) is spec
