"""Wire formats of other people's clients, each read into `Ask` and written from `Answer`."""

from loomrl.serving.dialect.known import DIALECTS, errors_of

__all__ = ["DIALECTS", "errors_of"]
