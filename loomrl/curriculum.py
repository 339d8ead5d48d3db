"""Tasks as hard as a policy can take: `from loomrl.curriculum import CurriculumGenerator`."""

from loomrl.gym.manual import CurriculumGenerator as CurriculumGenerator
