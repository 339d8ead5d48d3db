import hashlib
import importlib.metadata
import pickle
import random
import sys
from importlib.util import find_spec

import gymnasium
import pytest

from loomrl.errors import ConfigError, RegistryError
from loomrl.gym import BaseEnvironment, catalogue
from loomrl.gym.catalogue import register, registrations
from loomrl.gym.namespace import GROUP
from loomrl.gym.registry import Registry, make, names, register_environment, snapshot_of
from loomrl.store import open_store
from loomrl.store.events import EVENTS

pytestmark = pytest.mark.system

TRADING = '''
from loomrl.gym.base import BaseEnvironment, EnvironmentSettings, Step
from loomrl.types import Message, Reward


class TradingSettings(EnvironmentSettings):
    fee: float = 0.01


class TradingEnvironment(BaseEnvironment):
    """Buy low."""

    settings_class = TradingSettings
    reward_range = (float("-inf"), 10.0)

    async def reset(self, task=None):
        return (Message("user", "price?"),)

    async def step(self, action):
        return Step((), Reward(), True, False, {})


class Unfinished(BaseEnvironment):
    pass


class NoEnvironment:
    pass
'''


@pytest.fixture(autouse=True)
def clean_catalogue(monkeypatch):
    monkeypatch.setattr(catalogue, "_registered", {})


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """Write a module that can be imported, fresh in every test; returns its name."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a source changed within a second would look unchanged

    def write(source=TRADING, *, name="trading_envs", newline="\n"):
        path = tmp_path / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, newline=newline)
        for loaded in [loaded for loaded in sys.modules if loaded.split(".")[0] == name.split(".")[0]]:
            monkeypatch.delitem(sys.modules, loaded)
        return name

    return write


@pytest.fixture
def registry(sqlite_url):
    db = open_store(sqlite_url)
    yield Registry(db, clock=lambda: 7.0)
    db.close()


def register_trading(**changes):
    values = {"name": "Trading", "entry_point": "trading_envs:TradingEnvironment", "version": "1.2.0"}
    register_environment(**(values | changes))


def test_the_mission_s_own_snippet_works(write_module):
    write_module()
    register_environment(
        name="Trading",
        entry_point="trading_envs:TradingEnvironment",
        version="1.2.0",
        max_episode_steps=1000,
        reward_threshold=500.0,
    )
    environment = make("Trading")
    assert type(environment).__name__ == "TradingEnvironment"
    assert (environment.name, environment.version) == ("Trading", "1.2.0")
    assert environment.settings.max_steps == 1000
    assert environment.task("default", 1, 0).environment == "Trading"
    assert environment.task("default", 1, 0).version == "1.2.0"
    assert "loomrl/Trading-v1" in gymnasium.registry


def test_registering_imports_nothing():
    register_environment(name="Later", entry_point="not_yet_written:Environment", version="1.0.0")
    assert "Later" in names()
    with pytest.raises(RegistryError, match=r"'Later'.*not_yet_written"):
        make("Later")


def test_settings_go_before_those_of_the_registration(write_module):
    write_module()
    register_trading(max_episode_steps=10, settings={"fee": 0.5, "difficulty": "expert"})
    assert make("Trading").settings.model_dump() == {"difficulty": "expert", "max_steps": 10, "fee": 0.5}
    assert make("Trading", {"fee": 0.1, "max_steps": 3}).settings.max_steps == 3
    with pytest.raises(ConfigError, match="Did you mean 'fee'"):
        make("Trading", {"feee": 1})


def test_the_newest_version_answers_to_the_bare_name(write_module):
    write_module()
    for version in ("1.9.0", "1.10.0", "1.2.0"):
        register_trading(version=version)
    assert make("Trading").version == "1.10.0"
    assert make("Trading@1.2.0").version == "1.2.0"
    with pytest.raises(RegistryError, match=r"Trading version='1.3.0'.*Known: 1.10.0, 1.2.0, 1.9.0"):
        make("Trading@1.3.0")


def test_an_unknown_environment_names_the_nearest():
    register_trading()
    with pytest.raises(RegistryError, match="Did you mean 'Trading'"):
        make("Tradign")


def test_registering_the_same_twice_is_fine_and_something_else_is_not():
    register_trading()
    register_trading()
    with pytest.raises(RegistryError, match=r"Trading@1\.2\.0 is registered already.*new version number"):
        register_trading(max_episode_steps=3)
    assert len(registrations()) == 1


def test_registrations_travel_to_another_process(write_module):
    write_module()
    register_trading(settings={"fee": 0.5})
    shipped = pickle.loads(pickle.dumps(registrations()))
    catalogue._registered.clear()
    for registration in shipped:
        register(registration)
    assert make("Trading").settings.model_dump()["fee"] == 0.5


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"entry_point": "trading_envs.TradingEnvironment"}, "'package.module:Class' is needed"),
        ({"version": "one"}, "such as '1.2.0'"),
        ({"name": "loomrl/Trading"}, "a letter, then"),
        ({"name": "Math"}, "taken by an installed package"),
    ],
)
def test_a_registration_that_cannot_work_is_refused(changes, said):
    with pytest.raises(RegistryError, match=said):
        register_trading(**changes)


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("TradingEnviroment", "no attribute 'TradingEnviroment'"),
        ("NoEnvironment", "is no environment"),
        ("Unfinished", "lacks reset, step"),
    ],
)
def test_an_entry_point_that_names_no_environment_is_explained(write_module, attribute, said):
    write_module()
    register_trading(entry_point=f"trading_envs:{attribute}")
    with pytest.raises(RegistryError, match=said):
        make("Trading")


def test_a_module_that_raises_on_import_is_named(write_module):
    write_module("1 / 0", name="broken_module")
    register_trading(entry_point="broken_module:Environment")
    with pytest.raises(RegistryError, match="ZeroDivisionError"):
        make("Trading")


def test_an_installed_package_announces_its_environments(write_module, tmp_path, monkeypatch):
    write_module(TRADING.replace('"""Buy low."""', 'version = "3.1.0"'))
    installed = tmp_path / "trading-9.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: trading\nVersion: 9\n")
    (installed / "entry_points.txt").write_text(
        "[loomrl.environments]\nMarket = trading_envs:TradingEnvironment\nGone = no_such_module:Environment\n"
    )
    catalogue._entry_points.cache_clear()
    try:
        assert {"Gone", "Market", "Math"} <= set(names())
        assert make("Market").version == "3.1.0"
        assert make("Market@3.1.0").name == "Market"
        register_trading(name="Market", version="3.1.0")  # what is announced anyway
        assert make("Market").version == "3.1.0"
        with pytest.raises(RegistryError, match="taken by an installed package"):
            register_trading(name="Market", version="3.1.0", max_episode_steps=3)
        with pytest.raises(RegistryError, match="no_such_module"):
            make("Gone")
    finally:
        catalogue._entry_points.cache_clear()


def test_the_snapshot_does_not_depend_on_place_or_line_ends(write_module, tmp_path, monkeypatch):
    write_module()
    register_trading()
    here = snapshot_of("Trading")
    write_module(newline="\r\n")
    assert snapshot_of("Trading").hash == here.hash
    assert here.content["sources"] == {"trading_envs.py": hashlib.sha256(TRADING.encode()).hexdigest()}
    assert str(tmp_path) not in str(here.content)


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": {"fee": 0.02}},
        {"max_episode_steps": 5},
        {"reward_threshold": 1.0},
        {"entry_point": "trading_envs:Other"},
    ],
)
def test_every_part_of_a_registration_is_in_the_snapshot(write_module, changes):
    write_module(TRADING + "\n\nclass Other(TradingEnvironment):\n    pass\n")
    register_trading()
    register_trading(version="2.0.0", **changes)
    assert snapshot_of("Trading@1.2.0").hash != snapshot_of("Trading@2.0.0").hash


def test_the_sources_of_ancestors_and_declared_packages_are_in_the_snapshot(write_module):
    write_module("", name="trading_data.__init__")
    write_module("PRICES = [1]", name="trading_data.prices")
    write_module(
        'from trading_envs import *\n\n\nclass Fast(TradingEnvironment):\n    sources = ("trading_data",)\n',
        name="fast",
    )
    write_module()
    register_trading(entry_point="fast:Fast")
    before = snapshot_of("Trading")
    assert sorted(before.content["sources"]) == [
        "fast.py",
        "trading_data/__init__.py",
        "trading_data/prices.py",
        "trading_envs.py",
    ]
    write_module("PRICES = [2]", name="trading_data.prices")
    write_module(
        'from trading_envs import *\n\n\nclass Fast(TradingEnvironment):\n    sources = ("trading_data",)\n',
        name="fast",
    )
    assert snapshot_of("Trading").hash != before.hash


def test_declared_dependencies_count_with_their_installed_version(write_module):
    write_module(TRADING.replace('"""Buy low."""', 'dependencies = ("pydantic",)'))
    register_trading()
    assert snapshot_of("Trading").content["dependencies"] == {"pydantic": __import__("pydantic").VERSION}
    write_module(TRADING.replace('"""Buy low."""', 'dependencies = ("no-such-distribution",)'))
    with pytest.raises(RegistryError, match="pip install no-such-distribution"):
        snapshot_of("Trading")


def test_a_version_is_recorded_once(write_module, store):
    write_module()
    register_trading()
    registry = Registry(store, clock=random.Random(0).random)
    first = registry.register("Trading")
    assert registry.register("Trading@1.2.0") == first
    assert registry.list() == [first]
    assert registry.show("Trading") == first == registry.show("Trading@1.2.0")
    assert first.snapshot == snapshot_of("Trading").hash
    assert [event.subject for _, event in EVENTS.read(store, kind="environment.registered")] == ["Trading@1.2.0"]


def test_the_same_version_with_other_content_is_refused(write_module, registry):
    write_module()
    register_trading()
    recorded = registry.register("Trading")
    write_module(TRADING.replace("0.01", "0.02"))
    current = snapshot_of("Trading").hash
    with pytest.raises(RegistryError, match=f"{recorded.snapshot}.*{current}.*new version number"):
        registry.register("Trading")
    assert registry.list() == [recorded]


def test_verify_tells_what_changed_since(write_module, registry):
    write_module()
    register_trading()
    registry.register("Trading")
    assert registry.verify("Trading").equal
    write_module(TRADING.replace("0.01", "0.02"))
    verification = registry.verify("Trading")
    assert not verification.equal
    assert [str(change) for change in verification.differences] == [
        "settings.fee: 0.01 → 0.02",
        "trading_envs.py changed",
    ]


def test_diff_tells_versions_apart(write_module, registry):
    write_module()
    register_trading()
    registry.register("Trading")
    register_trading(version="2.0.0", max_episode_steps=9)
    registry.register("Trading@2.0.0")
    (change,) = registry.diff("Trading@1.2.0", "Trading@2.0.0")
    assert (change.part, change.name, change.old, change.new) == ("settings", "max_steps", 50, 9)
    assert registry.diff("Trading@2.0.0", "Trading") == ()


def test_a_version_that_is_not_recorded_is_explained(write_module, registry):
    with pytest.raises(RegistryError, match="loomrl envs list"):
        registry.show("Trading")
    write_module()
    register_trading()
    registry.register("Trading")
    with pytest.raises(RegistryError, match=r"Did you mean 'Trading@1\.2\.0'"):
        registry.show("Trading@1.2.1")


class Undeclared(BaseEnvironment):
    def __init__(self, settings=None):
        super().__init__(settings)

    async def reset(self, task=None):
        raise NotImplementedError

    async def step(self, action):
        raise NotImplementedError


def test_a_setting_that_an_environment_does_not_declare_is_answered_with_how_to_declare_it():
    with pytest.raises(ConfigError, match=r"speed=3: Undeclared declares no settings.*settings_class = Undeclared"):
        Undeclared({"speed": 3})
    assert Undeclared({"difficulty": 0.5}).settings.difficulty == 0.5


def test_every_environment_is_recorded_also_those_that_need_settings(tmp_path):
    refused = {}
    announced = sorted(entry.name for entry in importlib.metadata.entry_points(group=GROUP))
    assert len(announced) == 19
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        for name in announced:
            try:
                assert Registry(db).register(name).name == name
            except RegistryError as error:
                refused[name] = str(error)
    if find_spec("verifiers") is None:
        assert "verifiers', which is not installed" in refused.pop("Verifiers")
    assert refused == {}
