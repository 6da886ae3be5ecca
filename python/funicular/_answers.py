"""What predict gives."""


class Answers(list):
    """One dictionary per row, as the program writes it, and columns of them."""

    @property
    def labels(self):
        """The label of each row, or its labels."""
        return self._column("label") if self and "label" in self[0] else self._column("labels")

    @property
    def scores(self):
        """The probability of each row's label; of a regression the value. An array if numpy is installed, else a list."""
        return _array(self._column("score" if self and "score" in self[0] else "value"))

    @property
    def classes(self):
        """The names of the columns of `probabilities`."""
        return list(self[0]["probabilities"]) if self else []

    @property
    def probabilities(self):
        """Rows by classes. An array if numpy is installed, else a list of lists."""
        classes = self.classes
        return _array([[row["probabilities"][name] for name in classes] for row in self])

    def _column(self, name):
        try:
            return [row[name] for row in self]
        except KeyError:
            raise AttributeError(f"these answers have no {name}; they have {', '.join(self[0])}") from None


def _array(values):
    try:
        import numpy
    except ImportError:
        return values
    return numpy.array(values)
