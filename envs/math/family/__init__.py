"""The task families: a name for each generator."""

from collections.abc import Mapping
from random import Random

from loomrl.envs.math.family import (
    angle,
    arithmetic,
    circle,
    counting,
    derivative,
    equation,
    expansion,
    extremum,
    inequality,
    integral,
    limit,
    plane,
    probability,
    sample,
    solid,
)
from loomrl.envs.math.problem import Generator, Problem

FAMILIES: Mapping[str, Generator] = {
    "arithmetic.sum": arithmetic.sums,
    "arithmetic.product": arithmetic.product,
    "arithmetic.expression": arithmetic.expression,
    "arithmetic.fraction": arithmetic.fraction,
    "arithmetic.percent": arithmetic.percent,
    "arithmetic.division": arithmetic.division,
    "algebra.linear": equation.linear,
    "algebra.quadratic": equation.quadratic,
    "algebra.system": equation.system,
    "algebra.expand": expansion.expand,
    "algebra.factor": expansion.factor,
    "algebra.inequality": inequality.inequality,
    "algebra.composition": expansion.composition,
    "calculus.derivative": derivative.derivative,
    "calculus.tangent": derivative.tangent,
    "calculus.integral": integral.integral,
    "calculus.area": integral.area,
    "calculus.limit": limit.limit,
    "calculus.extremum": extremum.extremum,
    "geometry.angle": angle.angle,
    "geometry.pythagoras": plane.pythagoras,
    "geometry.circle": circle.circle,
    "geometry.coordinates": plane.coordinates,
    "geometry.solid": solid.solid,
    "geometry.line": plane.line,
    "geometry.similarity": plane.similarity,
    "statistics.mean": sample.mean,
    "statistics.median": sample.median,
    "statistics.variance": sample.variance,
    "statistics.probability": probability.probability,
    "statistics.counting": counting.counting,
    "statistics.expectation": probability.expectation,
    "statistics.conditional": probability.conditional,
}


def make_problem(family: str, level: int, seed: int) -> Problem:
    """The problem of these three: the same in every process."""
    return FAMILIES[family](level, Random(f"{family}:{level}:{seed}"))
