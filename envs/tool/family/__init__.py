"""The families, by name."""

from collections.abc import Mapping

from loomrl.envs.tool.family.bank import bank_problem
from loomrl.envs.tool.family.booking import booking_problem
from loomrl.envs.tool.family.calculator import calculator_problem
from loomrl.envs.tool.family.chain import chain_problem
from loomrl.envs.tool.family.file import file_problem
from loomrl.envs.tool.family.inventory import inventory_problem
from loomrl.envs.tool.family.search import search_problem
from loomrl.envs.tool.problem import Generator

FAMILIES: Mapping[str, Generator] = {
    "calculator": calculator_problem,
    "search": search_problem,
    "file": file_problem,
    "api.booking": booking_problem,
    "api.bank": bank_problem,
    "api.inventory": inventory_problem,
    "chain": chain_problem,
}
