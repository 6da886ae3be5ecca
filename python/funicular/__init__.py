"""Fast training of BERT-family encoders: starts the program `funicular` and reads its results."""

from ._answers import Answers
from ._commands import Run, distill, embed, evaluate, finetune, predict, pretrain, run, tokenize
from ._process import FunicularError, InputError, Interrupted

__all__ = ["Answers", "FunicularError", "InputError", "Interrupted", "Run", "distill", "embed", "evaluate", "finetune", "predict", "pretrain",
           "run", "tokenize"]


def __getattr__(name):
    if name == "__version__":
        from importlib.metadata import version  # after start-up: it costs milliseconds
        return version("funicular")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
