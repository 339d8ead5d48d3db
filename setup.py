"""Where the packages are: the folders of the top level are imported as `loomrl.envs` and so on."""

from setuptools import find_namespace_packages, setup

INSIDE = ("algorithms", "cluster", "envs", "experiments")

setup(
    packages=[
        *find_namespace_packages(include=["loomrl*"]),
        *(f"loomrl.{name}" for top in INSIDE for name in find_namespace_packages(include=[top, f"{top}.*"])),
    ],
    package_dir={f"loomrl.{top}": top for top in INSIDE},
)
