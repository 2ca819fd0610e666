"""CEL: the part of the expression language of validation rules that is evaluated here, exactly as Kubernetes does it.

`syntax` reads an expression, `programs` checks it against types and makes it ready to run, `parts`, `functions`,
`types` and `values` are what it may be about, `costs` and `sizes` what it may cost. Whatever would not compile in
kube-apiserver is Refused, and so is what is right CEL but not known here: the rest means what it means there.
`messages` are what an expression may make, for those who let it. Must not know schemas, requests or kinds.
"""

from kubesim.apiserver.cel.programs import Program, compiled
from kubesim.apiserver.cel.sizes import Extent
from kubesim.apiserver.cel.syntax import Refused
from kubesim.apiserver.cel.types import Type
from kubesim.apiserver.cel.values import Failed, Optional

__all__ = ["Extent", "Failed", "Optional", "Program", "Refused", "Type", "compiled"]
