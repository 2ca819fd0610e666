"""CEL: the part of the expression language of validation rules that is supported here.

`syntax` parses an expression, `programs` checks its types and makes it ready to run. `parts`, `functions`, `types` and
`values` define its operations, `costs` and `sizes` estimate its cost. Expressions that kube-apiserver does not compile
are Refused, and so is valid CEL that is missing here. All others have Kubernetes' meaning. `messages` are what an
expression may make, if the caller allows it.
"""

from kubesim.apiserver.cel.programs import Program, compiled
from kubesim.apiserver.cel.sizes import Extent
from kubesim.apiserver.cel.syntax import Refused
from kubesim.apiserver.cel.types import Type
from kubesim.apiserver.cel.values import Failed, Optional

__all__ = ["Extent", "Failed", "Optional", "Program", "Refused", "Type", "compiled"]
