"""python -m funicular COMMAND …: the program."""

from ._program import main

main()
