"""Language: questions on generated worlds, summaries read fact by fact, translation over closed vocabularies."""

from loomrl.envs.language.environment import LanguageEnvironment

__all__ = ["LanguageEnvironment"]
