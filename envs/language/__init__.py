"""Language: questions on generated worlds, summaries read fact by fact, translation over closed vocabularies."""

from envs.language.environment import LanguageEnvironment

__all__ = ["LanguageEnvironment"]
