"""The task families: a name for each generator."""

from collections.abc import Mapping

from loomrl.envs.math.family import algebra, arithmetic, calculus, geometry, statistics
from loomrl.envs.math.problem import Generator

FAMILIES: Mapping[str, Generator] = {
    "arithmetic.sum": arithmetic.sums,
    "arithmetic.product": arithmetic.product,
    "arithmetic.expression": arithmetic.expression,
    "arithmetic.fraction": arithmetic.fraction,
    "arithmetic.percent": arithmetic.percent,
    "arithmetic.division": arithmetic.division,
    "algebra.linear": algebra.linear,
    "algebra.quadratic": algebra.quadratic,
    "algebra.system": algebra.system,
    "algebra.expand": algebra.expand,
    "algebra.factor": algebra.factor,
    "algebra.inequality": algebra.inequality,
    "algebra.composition": algebra.composition,
    "calculus.derivative": calculus.derivative,
    "calculus.tangent": calculus.tangent,
    "calculus.integral": calculus.integral,
    "calculus.area": calculus.area,
    "calculus.limit": calculus.limit,
    "calculus.extremum": calculus.extremum,
    "geometry.angle": geometry.angle,
    "geometry.pythagoras": geometry.pythagoras,
    "geometry.circle": geometry.circle,
    "geometry.coordinates": geometry.coordinates,
    "geometry.solid": geometry.solid,
    "geometry.line": geometry.line,
    "geometry.similarity": geometry.similarity,
    "statistics.mean": statistics.mean,
    "statistics.median": statistics.median,
    "statistics.variance": statistics.variance,
    "statistics.probability": statistics.probability,
    "statistics.counting": statistics.counting,
    "statistics.expectation": statistics.expectation,
    "statistics.conditional": statistics.conditional,
}
