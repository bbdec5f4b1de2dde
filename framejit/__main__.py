"""`python -m framejit ...`"""
from framejit.cli import main

main()
