"""What the compiler found in a program: places that cost graphs, with their cost, cause and cure."""
from framejit.findings.explain import explain
from framejit.findings.explanation import Explanation
from framejit.findings.finding import Finding

__all__ = ["Explanation", "Finding", "explain"]
