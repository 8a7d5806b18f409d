"""`python -m provenzoo`."""

from provenzoo.cli import main

main()
